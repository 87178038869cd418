//! How often a case is repeated: until its ratio is known well enough, or its time is up.

use std::time::{Duration, Instant};

use crate::plan::Rounds;
use crate::record::Round;
use crate::record::case::ratio;
use crate::stats::interval::Interval;

/// So many times its time, and a case ends whatever it has: a herd can take long to disperse.
const MUCH_LONGER: u32 = 3;

pub(crate) struct Repeat {
    rounds: Rounds,
    time: Duration,
    began: Instant,
    done: u32,
}

impl Repeat {
    /// For this case, which may take this time.
    pub(crate) fn new(rounds: Rounds, time: Duration) -> Self {
        Self { rounds, time, began: Instant::now(), done: 0 }
    }

    /// The number of the next round, after these; `None` if these are enough. The time that was wasted does
    /// not count.
    pub(crate) fn next(&mut self, so_far: &[Round], wasted: Duration) -> Option<u32> {
        let elapsed = self.began.elapsed().saturating_sub(wasted);
        if !goes_on(self.rounds, self.time, self.done, elapsed, || ratio(so_far)) {
            return None;
        }
        self.done += 1;
        Some(self.done - 1)
    }
}

fn goes_on(
    rounds: Rounds,
    time: Duration,
    done: u32,
    elapsed: Duration,
    ratio: impl FnOnce() -> Option<Interval>,
) -> bool {
    if done == 0 {
        return true;
    }
    if done < rounds.least {
        return elapsed < time * MUCH_LONGER;
    }
    // By the clock rather than by the number of rounds: some take longer than planned.
    let next = elapsed / done;
    elapsed + next / 2 < time && !ratio().is_some_and(Interval::is_precise)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: Rounds =
        Rounds { least: 4, most: 10, ours: Duration::from_secs(1), floor: Duration::from_secs(1) };

    fn more(done: u32, elapsed: u64, ratio: Option<(f64, f64)>) -> bool {
        let interval = ratio.map(|(low, high)| Interval { median: 1.0, low, high });
        goes_on(ROUNDS, Duration::from_secs(20), done, Duration::from_secs(elapsed), || interval)
    }

    #[test]
    fn it_ends_when_it_is_sure_or_its_time_is_up() {
        assert!(more(3, 6, Some((0.99, 1.01))), "too few to say so");
        assert!(!more(4, 8, Some((0.96, 1.04))));
        assert!(more(4, 8, Some((0.9, 1.04))) && more(4, 8, Some((0.96, 1.1))) && more(4, 8, None));
        assert!(more(9, 18, Some((0.5, 2.0))) && !more(10, 20, Some((0.5, 2.0))));
    }

    #[test]
    fn slow_rounds_do_not_take_all_night() {
        assert!(more(0, 0, None) && more(3, 59, None) && !more(3, 60, None));
        // Another of these would end long after the time.
        assert!(!more(4, 18, None));
    }
}
