//! How often a case is repeated: until its ratio is known well enough, or three times its time is up. One without a
//! ratio never knows, and takes its time once.

use std::time::{Duration, Instant};

use crate::plan::Rounds;
use crate::record::Round;
use crate::record::case::ratio;
use crate::stats::interval::Interval;

/// So many times its time, and a case ends with fewer rounds than it needs: a herd can take long to disperse.
const FEW_MAY_TAKE: u32 = 3;

pub(crate) struct Repeat {
    rounds: Rounds,
    time: Duration,
    began: Instant,
    done: u32,
}

impl Repeat {
    /// For this case, which is planned to take this time.
    pub(crate) fn new(rounds: Rounds, time: Duration) -> Self {
        Self { rounds, time, began: Instant::now(), done: 0 }
    }

    /// The number of the next round, after these; `None` if these are enough. The time that was wasted does
    /// not count.
    pub(crate) fn next(&mut self, so_far: &[Round], wasted: Duration) -> Option<u32> {
        let elapsed = self.began.elapsed().saturating_sub(wasted);
        let found = u32::try_from(so_far.len()).unwrap_or(u32::MAX);
        if !goes_on(self.rounds, self.time, (self.done, found), elapsed, || ratio(so_far)) {
            return None;
        }
        self.done += 1;
        Some(self.done - 1)
    }
}

/// Until the interval is narrow, or the longest time is up. By the clock rather than by the number of rounds:
/// some take longer than planned. Not all that were done need have found something.
fn goes_on(
    rounds: Rounds,
    time: Duration,
    (done, found): (u32, u32),
    elapsed: Duration,
    ratio: impl FnOnce() -> Option<Interval>,
) -> bool {
    if done == 0 {
        return true;
    }
    let next = elapsed / done;
    let (ratio, are_few) = (ratio(), found < rounds.least);
    let longest = match ratio {
        _ if are_few => FEW_MAY_TAKE,
        None => 1,
        Some(_) => rounds.longest,
    };
    elapsed + next / 2 < time * longest && (are_few || !ratio.is_some_and(Interval::is_precise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    fn more_of(longest: u32, done: u32, elapsed: u64, ratio: Option<(f64, f64)>) -> bool {
        let second = Duration::from_secs(1);
        let rounds = Rounds { least: 4, most: 10, longest, ours: second, floor: second };
        let interval = ratio.map(|(low, high)| Interval { median: 1.0, low, high });
        goes_on(rounds, 20 * second, (done, done), Duration::from_secs(elapsed), || interval)
    }

    fn more(done: u32, elapsed: u64, ratio: Option<(f64, f64)>) -> bool {
        more_of(3, done, elapsed, ratio)
    }

    #[test]
    fn it_ends_when_it_is_sure() {
        assert!(more(3, 6, Some((0.99, 1.01))), "too few to say so");
        assert!(!more(4, 8, Some((0.96, 1.04))));
        assert!(more(4, 8, Some((0.9, 1.04))) && more(4, 8, Some((0.96, 1.1))) && more(4, 8, None));
    }

    #[test]
    fn it_ends_after_three_times_its_time() {
        assert!(more(10, 20, Some((0.5, 2.0))), "its time is up, and it is not sure");
        assert!(!more(11, 22, Some((0.96, 1.04))), "it is sure late");
        let wide = Some((0.5, 2.0));
        assert!(more(29, 58, wide) && !more(30, 60, wide));
        assert!(more(9, 18, wide) && more_of(1, 9, 18, wide) && !more_of(1, 10, 20, wide), "a short plan");
    }

    #[test]
    fn a_case_without_a_ratio_takes_its_time_once() {
        assert!(more(9, 18, None) && !more(10, 20, None));
    }

    #[test]
    fn rounds_that_found_nothing_are_made_again() {
        let (second, rounds) = (Duration::from_secs(1), Plan::QUICK.recovery);
        let more = |found, seconds| goes_on(rounds, 20 * second, (4, found), seconds * second, || None);
        assert!(more(3, 20) && more(3, 50) && !more(4, 20) && !more(3, 60));
    }

    #[test]
    fn slow_rounds_do_not_take_all_night() {
        assert!(more(0, 0, None) && more(2, 40, None) && !more(3, 60, None));
        assert!(more_of(1, 2, 40, None), "of so few nothing can be said");
        // Another of these would end long after the time.
        assert!(!more(4, 54, None));
    }
}
