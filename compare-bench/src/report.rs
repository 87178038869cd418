//! What `results.json` holds. A change that breaks its readers raises [`SCHEMA_VERSION`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::history::Handing;
use crate::machine::{Build, Machine};
use crate::ratio::Ratio;
use crate::stats::{Spread, median, round3};

/// The version of the form of `results.json`. Since 2, a ratio is an object with its interval, and null of too few rounds.
pub(crate) const SCHEMA_VERSION: u32 = 2;

/// How the ratios are to be read: under the table and in the file.
pub(crate) const HOW_TO_READ: &str = "ratio = lockwell / raw statements on the same server, taken in turns: the \
     median over the rounds, and in brackets its interval of 95 % (bootstrap over the rounds). Latency: 1.10 is 10 % slower than \
     the raw statements, lower is better. Throughput: 2.00 is twice the cycles of one raw connection (on Redis and ZooKeeper: of \
     as many tasks on one raw connection), higher is better.";

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) schema_version: u32,
    /// When the run began, UTC.
    pub(crate) date: String,
    pub(crate) seconds: f64,
    /// "full", "quick", or "smoke", whose figures mean nothing.
    pub(crate) mode: &'static str,
    pub(crate) build: Build,
    pub(crate) machine: Machine,
    pub(crate) how_to_read: &'static str,
    pub(crate) backends: Vec<Backend>,
    /// What was not measured, and why.
    pub(crate) missing: Vec<Missing>,
    /// What was tried and failed.
    pub(crate) failures: Vec<Failure>,
    /// What showed that a lock did not exclude. The run ended there.
    pub(crate) violation: Option<Failure>,
    pub(crate) results: Vec<Measurement>,
}

/// One backend that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Backend {
    pub(crate) name: String,
    /// The address, without the password.
    pub(crate) address: String,
    pub(crate) version: String,
    /// The settings of the server that decide what a commit costs.
    pub(crate) settings: BTreeMap<&'static str, String>,
    /// Where its data is: "tmpfs", "ext4", or unknown for a server that we did not start.
    pub(crate) storage: String,
    /// What one cycle of the floor is.
    pub(crate) floor: &'static str,
}

/// A backend that was not measured.
#[derive(Debug, Serialize)]
pub(crate) struct Missing {
    pub(crate) backend: String,
    pub(crate) reason: String,
}

/// A workload that failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) backend: String,
    pub(crate) workload: &'static str,
    pub(crate) reason: String,
}

/// What the ratio compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Median latency in microseconds: lower is better.
    LatencyUs,
    /// Cycles per second: higher is better.
    PerSecond,
}

/// One short round of ours and one of the floor, next to each other in time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) ours: f64,
    pub(crate) floor: f64,
}

/// One short round of another library, between ours and the floor's.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PeerRound {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) floor: f64,
}

/// Another library on the same work, in the same rounds.
#[derive(Debug, Serialize)]
pub(crate) struct PeerResult {
    pub(crate) name: &'static str,
    pub(crate) version: Option<String>,
    /// How it was set up.
    pub(crate) setup: Option<String>,
    /// The median over the rounds.
    pub(crate) theirs: f64,
    /// Of theirs / floor, over the rounds.
    pub(crate) ratio: Option<Ratio>,
    /// Of ours / theirs, over the rounds.
    pub(crate) ours_to_theirs: Option<Ratio>,
    pub(crate) rounds: Vec<PeerRound>,
    pub(crate) latency_us: Spread,
    pub(crate) per_second: f64,
    pub(crate) handing: Option<Handing>,
    /// As that of ours.
    pub(crate) requests_each: Option<f64>,
    /// Why it was not measured, or not to the end.
    pub(crate) error: Option<String>,
}

/// One workload on one backend.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) backend: String,
    pub(crate) workload: &'static str,
    /// The variant, for people: "16 tasks".
    pub(crate) case: String,
    pub(crate) parties: usize,
    /// "tasks" of one process, or "processes".
    pub(crate) parties_are: &'static str,
    /// How long each of them held the lock on purpose.
    pub(crate) hold_us: u64,
    pub(crate) quantity: Quantity,
    /// Medians over the rounds.
    pub(crate) ours: f64,
    pub(crate) floor: f64,
    /// Of ours / floor, over the rounds.
    pub(crate) ratio: Option<Ratio>,
    /// Whether the floor itself changed so much between the rounds that the ratio says little.
    pub(crate) unsteady: bool,
    /// The raw rounds: medians of latency, or rates.
    pub(crate) rounds: Vec<Round>,
    pub(crate) latency_us: Spread,
    /// What that latency is of.
    pub(crate) latency_of: &'static str,
    pub(crate) floor_latency_us: Spread,
    /// Acquisitions per second.
    pub(crate) per_second: f64,
    pub(crate) floor_per_second: f64,
    pub(crate) handing: Option<Handing>,
    /// For crowd on ZooKeeper: the requests that the server received for each acquisition, by its own count. The median
    /// over the rounds.
    pub(crate) requests_each: Option<f64>,
    /// For handoff: a request that writes nothing, there and back, in microseconds.
    pub(crate) trip_us: Option<f64>,
    /// For handoff: ours in such trips, over the rounds.
    pub(crate) trips: Option<Ratio>,
    pub(crate) peers: Vec<PeerResult>,
}

/// Medians over the rounds: ours, the floor, and the ratio of the two with its interval.
pub(crate) fn compare(rounds: &[Round]) -> (f64, f64, Option<Ratio>) {
    let ratios = rounds.iter().filter(|round| round.floor > 0.0).map(|round| round.ours / round.floor);
    (
        round3(median(rounds.iter().map(|round| round.ours))),
        round3(median(rounds.iter().map(|round| round.floor))),
        Ratio::of(ratios),
    )
}

/// The median over the rounds of how many requests there were for each acquisition.
pub(crate) fn requests(rounds: Vec<f64>) -> Option<f64> {
    (!rounds.is_empty()).then(|| round3(median(rounds)))
}

/// Whether the middle half of the floor's rounds lies further apart than one to one and a half: the disk, or somebody
/// else's work on this machine, is then a larger part of the figures than what is compared.
pub(crate) fn unsteady(rounds: &[Round]) -> bool {
    let mut floors: Vec<f64> = rounds.iter().map(|round| round.floor).collect();
    floors.sort_by(f64::total_cmp);
    match floors.len() {
        0 => false,
        count => floors[(count * 3 / 4).min(count - 1)] > 1.5 * floors[count / 4],
    }
}

impl Report {
    pub(crate) fn new(mode: &'static str) -> Self {
        Self {
            schema: "lockwell-compare",
            schema_version: SCHEMA_VERSION,
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            seconds: 0.0,
            mode,
            build: Build::look(),
            machine: Machine::look(),
            how_to_read: HOW_TO_READ,
            backends: Vec::new(),
            missing: Vec::new(),
            failures: Vec::new(),
            violation: None,
            results: Vec::new(),
        }
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.seconds = round3(time.as_secs_f64());
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
        text.push('\n');
        Ok(std::fs::write(file, text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        // A round in which the machine was busy slows both down, and spoils neither the ratio nor the medians.
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
        assert!(unsteady(&rounds(&[1.0, 1.1, 4.0, 4.2])));
        assert!(unsteady(&rounds(&[0.15, 8.0, 8.0])));
        assert!(!unsteady(&rounds(&[1.0])) && !unsteady(&[]));
    }

    #[test]
    fn a_floor_that_did_nothing_gives_no_ratio() {
        assert_eq!(compare(&[Round { ours: 1.0, floor: 0.0 }; 9]), (1.0, 0.0, None));
    }
}
