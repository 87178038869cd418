//! A process whose system calls are filtered.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::servers::{client, hold, options, single};

/// A hardened service can have a filter that kills it for a system call that is not on a list. It can use
/// locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_kills() {
    let Some(server) = single(&options()).await else { return };
    let filter = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zk/other/filter.py");
    let child = tokio::process::Command::new("python3")
        .arg(filter)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "filtered::holder_under_a_filter", "--ignored", "--nocapture"])
        .env("LOCKWELL_TEST_URL", server.url())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ended = match tokio::time::timeout(Duration::from_secs(120), child).await.expect("it ends") {
        Ok(ended) => ended,
        Err(error) => return testbed::lacks(&format!("python3: {error}")),
    };
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).replace('\n', "\n| ");
    assert!(ended.status.success() && said.contains("released"), "{}: {said}", ended.status);
}

/// What the other process does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is run by another test"]
async fn holder_under_a_filter() {
    let status = std::fs::read_to_string("/proc/self/status").expect("a file");
    assert!(status.lines().any(|line| line == "Seccomp:\t2"), "there is no filter");
    let locks = client(&std::env::var("LOCKWELL_TEST_URL").expect("an address")).await;
    let guard = hold(&locks, "filtered").await;
    // What is done after the connection goes on meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(guard.is_held(), "{guard:?}");
    guard.release().await.expect("held");
    println!("\nreleased");
}
