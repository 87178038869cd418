//! What the rounds of a case have in common: how often, how fast and how evenly a lock was handed on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{History, count, is_handover, spans};
use crate::measure::stats::{Sample, Spread, median, rate};

/// How the lock went from hand to hand.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Handing {
    pub(crate) acquisitions: u64,
    pub(crate) acquisitions_per_second: f64,
    /// Turns that followed one of another party, who was waiting already when the lock was released.
    pub(crate) handovers: u64,
    pub(crate) handovers_per_second: f64,
    /// Turns that followed one of the same party.
    pub(crate) repeats: u64,
    /// Acquisitions of each party.
    pub(crate) shares: Vec<u64>,
    /// Jain's index of the shares in a round, the median: 1 is fair, 1/n is one party taking everything.
    pub(crate) jain: f64,
    /// From a release to the turn of the party that had waited longest.
    pub(crate) to_the_first_us: Spread,
    /// From asking to having.
    pub(crate) wait_us: Spread,
    /// How long the lock was held.
    pub(crate) hold_us: Spread,
    /// Validity intervals that overlapped. Anything but zero fails the whole run, unless it is a peer's.
    pub(crate) overlaps: u64,
    /// Whether the tokens rose in the order of the turns. False fails the whole run. A peer without tokens
    /// has none.
    pub(crate) tokens_rise: Option<bool>,
}

/// What several rounds on one name have in common.
pub(crate) fn summary(rounds: &[History]) -> Handing {
    let turns = || rounds.iter().flat_map(|round| &round.turns);
    let mut shares = vec![0; rounds.iter().map(|round| round.parties).max().unwrap_or(0)];
    for turn in turns() {
        shares[turn.party] += 1;
    }
    let handovers = rounds.iter().flat_map(|round| round.turns.windows(2)).filter(|pair| is_handover(pair));
    let in_time = rounds.iter().map(History::handovers_in_time).sum();
    let pairs = rounds.iter().flat_map(|round| round.turns.windows(2));
    let repeats = pairs.filter(|pair| pair[0].party == pair[1].party).count();
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
    use crate::measure::history::Turn;

    /// After all turns of these tests.
    const UNTIL: u64 = 1_000_000;

    fn turn(party: usize, token: u64, asked: u64, acquired: u64, released: u64) -> Turn {
        Turn { party, token, asked, acquired, released }
    }

    #[test]
    fn fairness_is_that_of_a_round() {
        // In each round another one takes everything.
        let round = |party| {
            let turns = (0..10).map(|number| turn(party, number + 1, 0, number * 10, number * 10 + 1));
            History::of_peer(turns.collect(), 4, UNTIL)
        };
        let handing = summary(&[0, 1, 2, 3].map(round));
        assert_eq!(handing.shares, [10; 4]);
        assert!((handing.jain - 0.25).abs() < 0.001, "{}", handing.jain);
    }

    #[test]
    fn nothing_happened() {
        let handing = summary(&[History::check(Vec::new(), 4, UNTIL).unwrap()]);
        assert_eq!(handing.shares, [0, 0, 0, 0]);
        assert_eq!(handing.acquisitions, 0);
        assert!(handing.handovers_per_second.abs() < f64::EPSILON);
    }
}
