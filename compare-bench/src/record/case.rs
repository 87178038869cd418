//! One workload on one backend: the figures, and what they are computed from.

use serde::{Deserialize, Serialize};

use crate::stats::interval::Interval;
use crate::stats::{Spread, median, round3};

/// What the ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Median latency in microseconds: lower is better.
    LatencyUs,
    /// Cycles per second: higher is better.
    PerSecond,
    /// Time of processors in microseconds a second, of client and server together: lower is better.
    CpuUs,
}

/// One short round of ours and one of the floor, next to each other in time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) ours: f64,
    pub(crate) floor: f64,
}

/// One short round of another library, between ours and the floor's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PeerRound {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) floor: f64,
}

/// Another library on the same work, in the same rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerResult {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    /// How it was set up.
    pub(crate) setup: Option<String>,
    /// What it does not do of what lockwell does. Null where it does not say so.
    #[serde(default)]
    pub(crate) lacks: Option<String>,
    /// The median over the rounds.
    pub(crate) theirs: f64,
    /// Of theirs / floor, over the rounds.
    pub(crate) ratio: Option<Interval>,
    /// Of ours / theirs, over the rounds.
    pub(crate) ours_to_theirs: Option<Interval>,
    pub(crate) rounds: Vec<PeerRound>,
    pub(crate) latency_us: Spread,
    pub(crate) per_second: f64,
    pub(crate) handing: Option<Handing>,
    /// As those of ours.
    pub(crate) requests_each: Option<f64>,
    pub(crate) requests_rounds: Vec<f64>,
    #[serde(default)]
    pub(crate) wakeups_each: Option<f64>,
    /// Why its locks are no good, of a recipe that is there for contrast.
    #[serde(default)]
    pub(crate) unsafe_because: Option<String>,
    /// Why it was not measured, or not to the end.
    pub(crate) error: Option<String>,
}

/// How the lock went from hand to hand.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// What it costs to hold locks and do nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Holding {
    pub(crate) locks: usize,
    pub(crate) lease_us: u64,
    /// How long it was looked at, all rounds together.
    pub(crate) seconds: f64,
    /// Requests a second, by the count of the server. Null where it counts none.
    pub(crate) requests_per_second: Option<f64>,
    /// The process that holds the locks.
    pub(crate) client: Cost,
    /// All processes of all servers. Null where there is none, or it is not ours.
    pub(crate) server: Option<Cost>,
    /// TCP connections that the process with the locks has.
    pub(crate) connections: u64,
}

/// What processes need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Time of processors, in microseconds a second.
    pub(crate) cpu_us: f64,
    /// Memory, in KiB. What several processes share counts once.
    pub(crate) memory_kib: u64,
    /// How much of it came with the locks.
    pub(crate) grown_kib: i64,
}

/// One workload on one backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) backend: String,
    pub(crate) workload: String,
    /// The variant, for people: "16 tasks".
    pub(crate) case: String,
    pub(crate) parties: usize,
    /// "tasks" of one process, or "processes".
    pub(crate) parties_are: String,
    /// Of `arrivals`: how many requests arrived in a second.
    #[serde(default)]
    pub(crate) rate: Option<f64>,
    /// How long each of them held the lock on purpose.
    pub(crate) hold_us: u64,
    /// The option in the address of our client, for a variant: `server_order=true`.
    pub(crate) option: Option<String>,
    pub(crate) quantity: Quantity,
    /// Medians over the rounds.
    pub(crate) ours: f64,
    pub(crate) floor: f64,
    /// Of ours / floor, over the rounds.
    pub(crate) ratio: Option<Interval>,
    /// Whether the interval of the ratio was still wider than 5 % to either side at the end of the case.
    pub(crate) noisy: bool,
    /// Whether the floor itself changed so much between the rounds that the ratio says little.
    pub(crate) unsteady: bool,
    /// The raw rounds: medians of latency, or rates.
    pub(crate) rounds: Vec<Round>,
    pub(crate) latency_us: Spread,
    /// What that latency is of.
    pub(crate) latency_of: String,
    pub(crate) floor_latency_us: Spread,
    /// Acquisitions per second.
    pub(crate) per_second: f64,
    pub(crate) floor_per_second: f64,
    pub(crate) handing: Option<Handing>,
    /// For one name and many: the requests that the server received for each acquisition, by its own count.
    /// The median over the rounds.
    pub(crate) requests_each: Option<f64>,
    pub(crate) requests_rounds: Vec<f64>,
    /// The notifications that it sent for each acquisition, where it counts them.
    #[serde(default)]
    pub(crate) wakeups_each: Option<f64>,
    #[serde(default)]
    pub(crate) holding: Option<Holding>,
    /// The load of the machine at the end of the case, of the last minute: that of the measurement itself,
    /// too.
    pub(crate) load: f64,
    /// The share of the time of all cores that was spent on anything during the case, from 0 to 1.
    pub(crate) busy: f64,
    pub(crate) peers: Vec<PeerResult>,
}

/// Medians over the rounds: ours, the floor, and the ratio of the two with its interval.
pub(crate) fn compare(rounds: &[Round]) -> (f64, f64, Option<Interval>) {
    (
        round3(median(rounds.iter().map(|round| round.ours))),
        round3(median(rounds.iter().map(|round| round.floor))),
        ratio(rounds),
    )
}

/// The median over the rounds of how many requests there were for each acquisition.
pub(crate) fn requests(rounds: &[f64]) -> Option<f64> {
    (!rounds.is_empty()).then(|| round3(median(rounds.iter().copied())))
}

/// Whether the middle half of the floor's rounds lies further apart than one to one and a half: the disk, or
/// somebody else's work on this machine, is then a larger part of the figures than what is compared.
pub(crate) fn unsteady(rounds: &[Round]) -> bool {
    let mut floors: Vec<f64> = rounds.iter().map(|round| round.floor).collect();
    floors.sort_by(f64::total_cmp);
    match floors.len() {
        0 => false,
        count => floors[(count - 1) * 3 / 4] > 1.5 * floors[(count - 1) / 4],
    }
}

pub(crate) fn ratio(rounds: &[Round]) -> Option<Interval> {
    Interval::of(rounds.iter().filter(|round| round.floor > 0.0).map(|round| round.ours / round.floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        // A round in which the machine was busy slows both down, and spoils neither the ratio nor the
        // medians.
        let pairs = [(2.0, 1.0), (60.0, 20.0), (2.2, 1.0), (2.1, 1.0), (2.4, 2.0)];
        let rounds = pairs.map(|(ours, floor)| Round { ours, floor });
        let (ours, floor, ratio) = compare(&rounds);
        assert_eq!((ours, floor, ratio.map(|ratio| ratio.median)), (2.2, 1.0, Some(2.1)));
    }

    #[test]
    fn a_floor_that_swings_is_marked() {
        let rounds =
            |floors: &[f64]| floors.iter().map(|&floor| Round { ours: 1.0, floor }).collect::<Vec<_>>();
        assert!(!unsteady(&rounds(&[1.0, 1.1, 1.2, 1.3, 9.0])), "one round that was disturbed is no matter");
        assert!(!unsteady(&rounds(&[1.0, 1.1, 1.2, 9.0])), "of four as well");
        assert!(unsteady(&rounds(&[1.0, 1.1, 4.0, 4.2])));
        assert!(unsteady(&rounds(&[0.15, 8.0, 8.0])));
        assert!(!unsteady(&rounds(&[1.0])) && !unsteady(&[]));
    }

    #[test]
    fn a_floor_that_did_nothing_gives_no_ratio() {
        assert_eq!(compare(&[Round { ours: 1.0, floor: 0.0 }; 9]), (1.0, 0.0, None));
    }
}
