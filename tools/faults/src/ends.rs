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

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    fn died(signal: Signal) -> ExitStatus {
        ExitStatus::from_raw(signal.as_raw())
    }

    #[test]
    fn who_is_done_ends_well_unless_it_crashes() {
        for status in [Some(exited(0)), Some(exited(1))] {
            assert_eq!(wrong(Some("done"), status, false), None);
        }
        for status in [Some(exited(PANICKED)), Some(died(Signal::SEGV)), Some(died(Signal::ABORT)), None] {
            assert!(wrong(Some("done"), status, false).is_some(), "{status:?}");
        }
    }

    #[test]
    fn who_is_killed_ends_well_unless_it_ended_before() {
        assert_eq!(wrong(None, Some(died(Signal::KILL)), true), None);
        for (said, status) in [
            (None, Some(exited(PANICKED))),
            (None, Some(died(Signal::SEGV))),
            (None, Some(exited(0))),
            (None, None),
            (Some("error a task panicked"), Some(exited(1))),
        ] {
            assert!(wrong(said, status, true).is_some(), "{said:?} {status:?}");
        }
    }

    #[test]
    fn every_other_end_is_told() {
        let told = |said, status| wrong(said, status, false).unwrap();
        assert_eq!(
            told(None, Some(died(Signal::KILL))),
            "it said nothing and ended with signal: 9 (SIGKILL)"
        );
        assert_eq!(told(None, Some(exited(101))), "it said nothing and ended with exit status: 101");
        assert_eq!(
            told(Some("error x"), Some(exited(1))),
            "it said \"error x\" and ended with exit status: 1"
        );
        assert_eq!(told(Some("done"), None), "it said \"done\" and does not end");
    }
}
