//! One line of a figure.

use crate::measure::history::Handing;
use crate::measure::interval::Interval;
use crate::measure::stats::Spread;
use crate::record::{Measurement, PeerResult, Recovery};
use crate::view::show;
use crate::view::unit::Figure;

/// One lock on one server.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The best is 1. Those whose intervals overlap that of the best among them share a rank. `None` of too
    /// few rounds, and of a lock that is of no use beyond its process.
    pub(crate) rank: Option<usize>,
    /// "redis", or "rslock 1.2 on redis".
    pub(crate) who: String,
    pub(crate) backend: String,
    /// Of our client.
    pub(crate) option: Option<String>,
    pub(crate) is_peer: bool,
    pub(crate) is_local: bool,
    /// Of a peer: two held its lock at once, it failed, or its recipe is unsafe. Its speed is not compared.
    pub(crate) is_unfit: bool,
    pub(crate) median: f64,
    pub(crate) value: Option<Interval>,
    pub(crate) tail: Tail,
    /// How it compares with raw statements.
    pub(crate) to_floor: Option<Interval>,
    /// How many times as good the best is: 1 or more.
    pub(crate) to_best: Option<f64>,
    /// Of a lock that several want.
    pub(crate) fairness: Option<Fairness>,
    /// Fairness, starvation, noise, errors.
    pub(crate) remarks: Vec<String>,
    /// Of recovery.
    pub(crate) recovery: Option<Recovery>,
}

/// The slowest of all latencies, in microseconds. Zero where there are no latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tail {
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl From<&Spread> for Tail {
    fn from(&Spread { p90, p99, p999, .. }: &Spread) -> Self {
        Self { p90, p99, p999 }
    }
}

/// How evenly a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fairness {
    /// Jain's index.
    pub(crate) jain: f64,
    pub(crate) longest_wait_us: f64,
}

impl From<&Handing> for Fairness {
    fn from(handing: &Handing) -> Self {
        Self { jain: handing.jain, longest_wait_us: handing.wait_us.max }
    }
}

impl Line {
    pub(super) fn ours(result: &Measurement, (median, value): Figure, to_floor: Option<Interval>) -> Self {
        let option = result.option.as_ref().map_or(String::new(), |option| format!(", {option}"));
        let is_local = result.backend == "memory";
        let mut remarks = Vec::new();
        remarks.extend(is_local.then(|| "one process only".to_owned()));
        remarks.extend(result.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(result.recovery.iter().flat_map(show::recovery));
        remarks.extend(result.holding.iter().flat_map(show::holding));
        remarks.extend(result.handing.iter().flat_map(|handing| show::sharing(handing, result.quantity)));
        remarks.extend((result.noisy && to_floor.is_some()).then(|| "noisy".to_owned()));
        remarks.extend(result.unsteady.then(|| "raw statements unsteady".to_owned()));
        Self {
            rank: None,
            who: format!("{}{option}", result.backend),
            backend: result.backend.clone(),
            option: result.option.clone(),
            is_peer: false,
            is_local,
            is_unfit: false,
            median,
            value,
            tail: Tail::from(&result.latency_us),
            to_floor,
            to_best: None,
            fairness: result.handing.as_ref().map(Fairness::from),
            remarks,
            recovery: result.recovery.clone(),
        }
    }

    pub(super) fn peer(peer: &PeerResult, result: &Measurement, (median, value): Figure) -> Self {
        let version = peer.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
        let mut remarks: Vec<_> = peer.error.iter().chain(&peer.unsafe_because).cloned().collect();
        remarks.extend(peer.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(peer.handing.iter().flat_map(|handing| show::sharing(handing, result.quantity)));
        let overlaps = peer.handing.as_ref().is_some_and(|handing| handing.overlaps > 0);
        Self {
            rank: None,
            who: format!("{}{version} on {}", peer.name, result.backend),
            backend: result.backend.clone(),
            option: None,
            is_peer: true,
            is_local: false,
            is_unfit: overlaps || peer.error.is_some() || peer.unsafe_because.is_some(),
            median,
            value,
            tail: Tail::from(&peer.latency_us),
            to_floor: peer.ratio,
            to_best: None,
            fairness: peer.handing.as_ref().map(Fairness::from),
            remarks,
            recovery: None,
        }
    }
}
