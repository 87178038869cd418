//! What belongs to a whole process: its panic hook, its subscriber, its recorder, its end. So each of these tests
//! runs in a process of its own.

mod blocked_subscriber;
#[cfg(feature = "metrics")]
mod classes;
mod end_of_process;
#[cfg(feature = "metrics")]
mod hostile_recorder;
mod odd;
mod panics;

use std::process::Command;

/// Set in a process that runs one test. Nextest starts such a process by itself.
const ALONE: &str = "LOCKWELL_TEST_ALONE";

/// Runs the test of this name, whose work this is, in a process of its own.
fn alone(name: &str, work: impl Future<Output = ()>) {
    if [ALONE, "NEXTEST"].into_iter().any(|variable| std::env::var_os(variable).is_some()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(work);
    }
    let mut test = Command::new(std::env::current_exe().unwrap());
    let output = test.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
