//! What a result file holds. A change that breaks its readers raises [`SCHEMA_VERSION`].

pub(crate) mod case;
pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod machine;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::case::{
    Cost, Handing, Holding, Measurement, PeerResult, PeerRound, Quantity, Round, compare, requests, unsteady,
};
use self::disk::Disk;
use self::machine::{Build, Machine};
use crate::stats::round3;

/// The version of the form of the file. Since 2, a ratio is an object with its interval, and null of too few
/// rounds. Since 3, the file is written after each case and can be read back; it has histograms, conditions,
/// loads and the command. Since 5, it has no histograms any more.
pub(crate) const SCHEMA_VERSION: u32 = 5;

/// What the files call themselves.
pub(crate) const SCHEMA: &str = "lockwell-compare";

/// How the ratios are to be read: under the table and in the file.
pub(crate) const HOW_TO_READ: &str = "ratio = lockwell / raw statements on the same server, taken in turns: the \
     median over the rounds, and in brackets its interval of 95 % (bootstrap over the rounds). Latency: 1.10 is 10 % slower than \
     the raw statements, lower is better. Throughput: 2.00 is twice the cycles of as many raw tasks, but on SQL databases of one raw \
     connection, higher is better.";

/// Everything that a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: String,
    pub(crate) schema_version: u32,
    /// When the run began, UTC.
    pub(crate) date: String,
    /// How long it took, without what lies between a run that was ended and the one that went on with it.
    pub(crate) seconds: f64,
    /// Whether everything was measured that was to be. False after a crash, and while the run goes on.
    pub(crate) finished: bool,
    /// When runs went on with this one, UTC.
    pub(crate) resumed: Vec<String>,
    /// "usual", "quick", "full", or "smoke", whose figures mean nothing.
    pub(crate) mode: String,
    /// The arguments of the command, without passwords.
    pub(crate) arguments: Vec<String>,
    pub(crate) conditions: Conditions,
    pub(crate) build: Build,
    pub(crate) machine: Machine,
    /// The disk that the data of the servers was on. Null where only servers of others were measured.
    pub(crate) disk: Option<Disk>,
    /// The load of the machine before the run: of the last minute.
    pub(crate) load_before: f64,
    pub(crate) how_to_read: String,
    pub(crate) backends: Vec<Backend>,
    /// What was not measured, and why.
    pub(crate) missing: Vec<Missing>,
    /// What was tried and failed.
    pub(crate) failures: Vec<Failure>,
    /// What showed that a lock did not exclude. The run ended there.
    pub(crate) violation: Option<Failure>,
    pub(crate) results: Vec<Measurement>,
}

/// What holds for a whole run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// What a commit waits for: "disk", "os", "none", or "default", what each server does by itself;
    /// "unknown" of servers that we did not start.
    pub(crate) durability: String,
    /// The file system of the data: "tmpfs", "ext4"; "unknown" of servers that we did not start.
    pub(crate) storage: String,
    /// How long everything took to a server, and as long back, beside what the machine itself needs.
    pub(crate) delay_us: u64,
}

/// One backend that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Backend {
    pub(crate) name: String,
    /// The address, without the password.
    pub(crate) address: String,
    pub(crate) version: String,
    /// The settings of the server that decide what a commit costs.
    pub(crate) settings: BTreeMap<String, String>,
    /// Where its data is: "tmpfs", "ext4", or unknown for a server that we did not start.
    pub(crate) storage: String,
    /// What one cycle of the floor is.
    pub(crate) floor: String,
    /// What the lock on it promises: "fencing", "fifo", as `Requirement` calls it, with underscores.
    pub(crate) promises: BTreeMap<String, bool>,
    pub(crate) shortest_lease_us: u64,
}

/// A backend, a workload on a backend, or another library that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) backend: String,
    pub(crate) reason: String,
}

/// A case that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) backend: String,
    pub(crate) workload: String,
    pub(crate) case: String,
    pub(crate) reason: String,
}

impl Backend {
    /// Whether figures of the two can stand in one file. The address of a server that we start is another
    /// each time.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let Self { name, version, settings, storage, floor, .. } = self;
        let theirs = (&other.name, &other.version, &other.settings, &other.storage, &other.floor);
        (name, version, settings, storage, floor) == theirs
    }
}

impl Report {
    pub(crate) fn new(mode: &str, conditions: Conditions) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            date: now(),
            seconds: 0.0,
            finished: false,
            resumed: Vec::new(),
            mode: mode.to_owned(),
            arguments: machine::arguments(std::env::args().skip(1)),
            conditions,
            build: Build::look(),
            machine: Machine::look(),
            disk: None,
            load_before: machine::load(),
            how_to_read: HOW_TO_READ.to_owned(),
            backends: Vec::new(),
            missing: Vec::new(),
            failures: Vec::new(),
            violation: None,
            results: Vec::new(),
        }
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.seconds = round3(self.seconds + time.as_secs_f64());
    }

    /// How long a sync of the disk took: the median, in microseconds.
    pub(crate) fn sync_us(&self) -> Option<f64> {
        self.disk.as_ref().map(|disk| disk.sync_us.p50)
    }

    /// Whether this case is in it already.
    pub(crate) fn has(&self, backend: &str, workload: &str, case: &str) -> bool {
        let is_it = |result: &Measurement| {
            result.backend == backend && result.workload == workload && result.case == case
        };
        self.results.iter().any(is_it)
    }

    /// Why what is measured now cannot be added to this file, if it cannot: figures of different machines,
    /// programs or conditions in one file would be compared with each other.
    pub(crate) fn differs(&self, now: &Self) -> Option<&'static str> {
        if self.violation.is_some() {
            Some("it ended with a lock that did not exclude")
        } else if self.machine != now.machine {
            Some("it was taken on another machine, or with another kernel")
        } else if self.build != now.build {
            Some("it was taken by another build of this program")
        } else if self.mode != now.mode || self.conditions != now.conditions {
            Some("it was taken with other options")
        } else {
            None
        }
    }
}

pub(crate) fn now() -> String {
    humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::Sample;
    use crate::stats::interval::Interval;

    pub(crate) fn conditions() -> Conditions {
        Conditions { durability: "disk".to_owned(), storage: "ext4".to_owned(), delay_us: 0 }
    }

    pub(crate) fn report() -> Report {
        Report::new("smoke", conditions())
    }

    /// Hand-overs in so many rounds, all alike, and two other libraries: one a little quicker, one much
    /// slower.
    pub(crate) fn measured(backend: &str, rounds: usize) -> Measurement {
        let rounds = vec![Round { ours: 3.0, floor: 2.0 }; rounds];
        let (ours, floor, ratio) = compare(&rounds);
        let mut sample = Sample::new();
        sample.note(Duration::from_micros(3), 1);
        let spread = sample.spread();
        let against = |name: &str, theirs: f64| PeerResult {
            name: name.to_owned(),
            version: Some("1.0".to_owned()),
            setup: None,
            lacks: None,
            theirs,
            ratio: ratio.map(|_| Interval { median: theirs / 2.0, low: theirs / 2.0, high: theirs / 2.0 }),
            ours_to_theirs: Interval::of(rounds.iter().map(|round| round.ours / theirs)),
            rounds: rounds
                .iter()
                .map(|round| PeerRound { ours: round.ours, theirs, floor: round.floor })
                .collect(),
            latency_us: spread.clone(),
            per_second: 1.0,
            handing: None,
            requests_each: None,
            requests_rounds: Vec::new(),
            wakeups_each: None,
            unsafe_because: None,
            error: None,
        };
        Measurement {
            backend: backend.to_owned(),
            workload: "handoff".to_owned(),
            case: "2 processes, hold 0 ms".to_owned(),
            parties: 2,
            parties_are: "processes".to_owned(),
            rate: None,
            hold_us: 0,
            option: None,
            quantity: Quantity::LatencyUs,
            ours,
            floor,
            ratio,
            noisy: false,
            unsteady: false,
            rounds: rounds.clone(),
            latency_us: spread.clone(),
            latency_of: String::new(),
            floor_latency_us: spread.clone(),
            per_second: 1.0,
            floor_per_second: 1.0,
            handing: None,
            requests_each: None,
            requests_rounds: Vec::new(),
            wakeups_each: None,
            holding: None,
            load: 0.0,
            busy: 0.0,
            peers: vec![against("quick", 2.5), against("slow", 300.0)],
        }
    }

    #[test]
    fn unlike_runs_are_not_mixed() {
        let before = report();
        assert_eq!(before.differs(&report()), None);
        let mut other = report();
        other.machine.cpu.push('x');
        assert!(before.differs(&other).is_some_and(|reason| reason.contains("machine")));
        let mut other = report();
        other.build.git_commit = Some("another".to_owned());
        assert!(before.differs(&other).is_some_and(|reason| reason.contains("build")));
        let mut other = report();
        other.conditions.delay_us = 5;
        assert!(before.differs(&other).is_some_and(|reason| reason.contains("options")));
    }
}
