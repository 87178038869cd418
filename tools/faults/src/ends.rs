//! Whether a worker process has come to its end as it was told to.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

/// The status of a program in Rust that panicked.
const PANICKED: i32 = 101;

/// What is wrong with the end of a process that said this at last, or nothing, and ended so. `None` as the
/// status: it had to be killed, since it did not end.
pub(crate) fn wrong(said: Option<&str>, status: Option<ExitStatus>, was_killed: bool) -> Option<String> {
    let words = said.map_or_else(|| "nothing".to_owned(), |line| format!("{line:?}"));
    let Some(status) = status else { return Some(format!("it said {words} and does not end")) };
    let is_crash = status.signal().is_some() || status.code() == Some(PANICKED);
    match said {
        // With another status if a server in trouble did not let it close its client.
        Some("done") if !is_crash => None,
        // The fault. One that ended by itself before has another status, or has said why.
        None if was_killed && status.signal() == Some(Signal::KILL.as_raw()) => None,
        _ => Some(format!("it said {words} and ended with {status}")),
    }
}
