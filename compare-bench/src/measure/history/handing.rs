//! What the rounds of a case have in common: how often, how fast and how evenly a lock was handed on.

use super::{History, count, is_handover, spans};
use crate::record::Handing;
use crate::stats::{Sample, median, rate};

/// What several rounds on the same names have in common.
pub(crate) fn summary(rounds: &[History]) -> Handing {
    let turns = || rounds.iter().flat_map(|round| &round.turns);
    let mut shares = vec![0; rounds.iter().map(|round| round.parties).max().unwrap_or(0)];
    for turn in turns() {
        shares[turn.party] += 1;
    }
    let pairs = || rounds.iter().flat_map(History::pairs);
    let handovers = pairs().filter(|pair| is_handover(pair));
    let in_time = rounds.iter().map(History::handovers_in_time).sum();
    let repeats = pairs().filter(|pair| pair[0].party == pair[1].party).count();
    let time = rounds.iter().map(History::span).sum();
    let acquisitions = count(turns().count());
    let mut to_the_first = Sample::new();
    for round in rounds {
        to_the_first.append(&round.to_the_first());
    }
    Handing {
        acquisitions,
        to_the_first_us: to_the_first.spread(),
        acquisitions_per_second: rate(rounds.iter().map(History::steps).sum(), time),
        handovers: count(handovers.count()),
        handovers_per_second: rate(in_time, time),
        repeats: count(repeats),
        jain: median(rounds.iter().map(History::jain)),
        shares,
        wait_us: spans(turns().map(|turn| turn.acquired - turn.asked)).spread(),
        hold_us: spans(turns().map(|turn| turn.released - turn.acquired)).spread(),
        overlaps: rounds.iter().map(|round| round.overlaps).sum(),
        tokens_rise: rounds.iter().all(|round| round.tokens).then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::history::tests::{UNTIL, turn};

    #[test]
    fn fairness_is_that_of_a_round() {
        // In each round another one takes everything.
        let round = |party| {
            let turns = (0..10).map(|number| turn(party, number + 1, 0, number * 10, number * 10 + 1));
            History::of_peer(turns.collect(), 4, 1, UNTIL)
        };
        let handing = summary(&[0, 1, 2, 3].map(round));
        assert_eq!(handing.shares, [10; 4]);
        assert!((handing.jain - 0.25).abs() < 0.001, "{}", handing.jain);
    }

    #[test]
    fn nothing_happened() {
        let handing = summary(&[History::check(Vec::new(), 4, 1, UNTIL).unwrap()]);
        assert_eq!(handing.shares, [0, 0, 0, 0]);
        assert_eq!(handing.acquisitions, 0);
        assert!(handing.handovers_per_second.abs() < f64::EPSILON);
    }

    #[test]
    fn two_may_hold_different_names_at_once() {
        // 0 and 1 want one name, 2 and 3 another. The tokens of each count for themselves.
        let turns =
            vec![turn(2, 4, 0, 10, 90), turn(0, 7, 0, 20, 50), turn(1, 8, 0, 60, 80), turn(3, 5, 0, 95, 99)];
        assert!(History::check(turns.clone(), 4, 1, UNTIL).is_err(), "on one name");
        assert_eq!(summary(&[History::of_peer(turns.clone(), 4, 1, UNTIL)]).overlaps, 2);
        let handing = summary(&[History::check(turns.clone(), 4, 2, UNTIL).unwrap()]);
        assert_eq!((handing.acquisitions, handing.handovers, handing.repeats), (4, 2, 0));
        assert_eq!((handing.shares, handing.jain), (vec![1; 4], 1.0));
        let mut overlapping = turns.clone();
        overlapping[3].acquired = 89;
        let error = History::check(overlapping.clone(), 4, 2, UNTIL).unwrap_err();
        assert!(error.to_string().contains("two held the lock at once"), "{error}");
        assert_eq!(summary(&[History::of_peer(overlapping, 4, 2, UNTIL)]).overlaps, 1);
        let mut falling = turns;
        falling[3].token = 4;
        assert!(History::check(falling, 4, 2, UNTIL).unwrap_err().to_string().contains("did not rise"));
    }

    #[test]
    fn the_grants_of_all_names_count_together() {
        let milli = 1_000_000;
        // On each of two names, two parties take turns of 1 ms for 100 ms. A hand-over takes half of it.
        let take = |number: u64, name: u64| {
            let at = number * milli;
            let party = usize::try_from(2 * name + number % 2).unwrap();
            turn(party, number + 1, at.saturating_sub(milli), at, at + milli / 2)
        };
        let turns = (0..=100).flat_map(|number| [take(number, 0), take(number, 1)]);
        let history = History::check(turns.collect(), 4, 2, 100 * milli).unwrap();
        assert!((history.per_second() - 2000.0).abs() < 0.001, "{}", history.per_second());
        assert_eq!(history.to_the_first().spread().samples, 200);
        let handing = summary(&[history]);
        assert!((handing.handovers_per_second - 2000.0).abs() < 0.001, "{handing:?}");
        assert!((handing.to_the_first_us.p50 / 500.0 - 1.0).abs() < 0.02, "{handing:?}");
        assert!(handing.jain > 0.99, "{handing:?}");
    }
}
