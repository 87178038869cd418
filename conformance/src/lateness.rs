//! How late threads of this process wake up.
//!
//! A case that expects something within a time would fail on a machine that is busy with other things. So a
//! witness thread sleeps for a few milliseconds again and again, and records how late it wakes up. The limit
//! of a timed case is longer by what the witness saw meanwhile: code that is late fails the case, and a
//! machine that is late does not.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockwell_core::Moment;

/// How long the witness sleeps at a time.
const SLEEP: Duration = Duration::from_millis(5);

/// A sleep that ends less late than this is punctual.
const PUNCTUAL: Duration = Duration::from_millis(2);

/// How many late wake-ups are remembered: those of the last minutes, even if every one is late.
const KEPT: usize = 100_000;

static SEEN: LazyLock<Mutex<VecDeque<Late>>> = LazyLock::new(Mutex::default);

#[derive(Clone, Copy, Debug)]
struct Late {
    /// When the witness woke up.
    at: Moment,
    by: Duration,
}

/// Starts the witness, if it does not run yet. It runs as long as this process.
pub(super) fn watch() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let witness = thread::Builder::new().name("lateness".into()).spawn(|| {
            loop {
                let began = Instant::now();
                thread::sleep(SLEEP);
                note(Moment::now(), began.elapsed().saturating_sub(SLEEP));
            }
        });
        if let Err(error) = witness {
            eprintln!("without a witness all limits are strict: {error}");
        }
    });
}

fn note(at: Moment, by: Duration) {
    if by < PUNCTUAL {
        return;
    }
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() >= KEPT {
        seen.pop_front();
    }
    seen.push_back(Late { at, by });
}

/// The worst lateness from this moment of the case's clock until now.
pub(super) fn since(began: Moment) -> Duration {
    // A clock that skips rest may be ahead of the machine's, so the two have only this time in common.
    worst(Moment::now(), super::time::now().since(began))
}

/// The worst lateness in the time before this moment.
fn worst(now: Moment, elapsed: Duration) -> Duration {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    // A sleep that began before the interval was late within it as far as it ended in it.
    let within = seen.iter().rev().map_while(|late| {
        let into = elapsed.checked_sub(now.since(late.at))?;
        Some(late.by.min(into))
    });
    within.max().unwrap_or_default()
}

/// A limit for what began at this moment, on this machine.
pub(super) fn allowed(limit: Duration, began: Moment) -> Duration {
    limit + since(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_machine_gets_longer_limits() {
        let begin = Moment::now().after(Duration::from_secs(1000));
        let millis = Duration::from_millis;
        for (moment, by) in [(10, 300), (1000, 20), (2000, 1), (3000, 500), (4000, 40)] {
            note(begin.after(millis(moment)), millis(by));
        }
        let from = |moment: u64| worst(begin.after(millis(5000)), millis(5000 - moment));
        assert_eq!(from(4001), Duration::ZERO);
        assert_eq!(from(3500), millis(40));
        assert_eq!(from(2900), millis(100), "what was before does not count");
        assert_eq!(from(500), millis(500));
    }
}
