//! One line of a figure.

use crate::record::{Handing, Measurement, PeerResult};
use crate::stats::interval::Interval;
use crate::stats::{Spread, as_float};
use crate::view::family::in_words;
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
    /// By what factor another figure has to differ, if it is to be known which of the two is larger. A noisy
    /// one is no surer than its ratio to the raw statements, and beside unsteady ones it has to differ by
    /// more than they did from round to round.
    pub(crate) noise: f64,
    pub(crate) tail: Tail,
    /// How it compares with raw statements.
    pub(crate) to_floor: Option<Interval>,
    /// How many times as good the best is: 1 or more. `None` where figures measure different things.
    pub(crate) to_best: Option<f64>,
    /// Of a lock that several want.
    pub(crate) fairness: Option<Fairness>,
    /// Fairness, starvation, noise, errors.
    pub(crate) remarks: Vec<String>,
    /// What is told instead of a ratio, where the figure measures something else than those of others. How
    /// long a lone server is down is decided by the one who stopped it, and when a group of servers goes on
    /// without the one that fails is decided by its settings. And the latency of what falls behind grows for
    /// as long as requests arrive: its rate is told.
    pub(crate) instead: Option<String>,
}

/// The slowest of all latencies, in microseconds. Zero where there are too few: of twenty, the slowest says
/// nothing about one in a hundred.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tail {
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl From<&Spread> for Tail {
    fn from(&Spread { samples, p90, p99, p999, .. }: &Spread) -> Self {
        let of = |least, share| if samples < least { 0.0 } else { share };
        Self { p90: of(10, p90), p99: of(100, p99), p999: of(1000, p999) }
    }
}

/// How evenly a lock was granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fairness {
    /// Jain's index.
    pub(crate) jain: f64,
    pub(crate) longest_wait_us: f64,
    pub(crate) grants_per_second: f64,
}

impl From<&Handing> for Fairness {
    fn from(handing: &Handing) -> Self {
        Self {
            jain: handing.jain,
            longest_wait_us: handing.wait_us.max,
            grants_per_second: handing.acquisitions_per_second,
        }
    }
}

impl Line {
    /// Who it is, in full words.
    pub(crate) fn in_words(&self) -> String {
        // A backend is the beginning of ours, and the end of another library's.
        let words = in_words(&self.backend);
        let rest = if self.is_peer { self.who.strip_suffix(&*self.backend) } else { None };
        match (rest, &self.option) {
            (Some(rest), _) => format!("{rest}{words}"),
            (None, Some(option)) => format!("{words}, {option}"),
            (None, None) => words,
        }
    }

    pub(super) fn ours(result: &Measurement, (median, value): Figure, to_floor: Option<Interval>) -> Self {
        let option = result.option.as_ref().map_or(String::new(), |option| format!(", {option}"));
        let is_local = result.backend == "memory";
        let behind = behind(result);
        let of_a_server = result.recovery.as_ref().filter(|recovery| !recovery.role.is_empty());
        let of_a_server = of_a_server.map(|_| show::time(median));
        let mut remarks = Vec::new();
        remarks.extend(behind.map(|rate| format!("falls behind: {} a second", show::number(rate))));
        remarks.extend(is_local.then(|| "one process only".to_owned()));
        remarks.extend(result.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(result.recovery.iter().flat_map(show::recovery));
        remarks.extend(result.holding.iter().flat_map(show::holding));
        remarks.extend(result.handing.iter().flat_map(|handing| sharing(handing, result)));
        remarks.push(format!("{} rounds", result.rounds.len()));
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
            noise: noise(result),
            tail: Tail::from(&result.latency_us),
            to_floor,
            to_best: None,
            fairness: result.handing.as_ref().map(Fairness::from),
            remarks,
            instead: of_a_server.or_else(|| behind.map(|rate| format!("{}/s", show::number(rate)))),
        }
    }

    pub(super) fn peer(peer: &PeerResult, result: &Measurement, (median, value): Figure) -> Self {
        let version = peer.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
        let mut remarks: Vec<_> = peer.error.iter().chain(&peer.unsafe_because).cloned().collect();
        remarks.extend(peer.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(peer.handing.iter().flat_map(|handing| sharing(handing, result)));
        remarks.extend(peer.lacks.iter().map(|lacks| format!("lacks: {lacks}")));
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
            noise: noise(result),
            tail: Tail::from(&peer.latency_us),
            to_floor: peer.ratio,
            to_best: None,
            fairness: peer.handing.as_ref().map(Fairness::from),
            remarks,
            instead: None,
        }
    }
}

/// How locks were shared. Where the figure is the rate of several of them, a hand-over is told, too.
fn sharing(handing: &Handing, result: &Measurement) -> Vec<String> {
    let mut remarks = show::sharing(handing, result.quantity);
    let handover = || format!("median hand-over {}", show::time(handing.to_the_first_us.p50));
    remarks.extend((result.workload == "hot").then(handover));
    remarks
}

/// The share of the rate of arrivals that is reached by whatever keeps up: the last answers of a round come
/// after its last request.
const KEEPS_UP: f64 = 0.9;

fn behind(result: &Measurement) -> Option<f64> {
    let rate = as_float(u64::try_from(result.parties).unwrap_or(u64::MAX));
    (result.workload == "arrivals" && result.per_second < KEEPS_UP * rate).then_some(result.per_second)
}

/// How many times the smallest of these the largest is.
fn range(figures: impl Iterator<Item = f64> + Clone) -> f64 {
    let smallest = figures.clone().fold(f64::INFINITY, f64::min);
    if smallest > 0.0 && smallest.is_finite() {
        figures.fold(smallest, f64::max) / smallest
    } else {
        f64::INFINITY
    }
}

fn noise(result: &Measurement) -> f64 {
    match result.ratio {
        _ if result.unsteady => range(result.rounds.iter().map(|round| round.floor)),
        Some(ratio) if result.noisy && ratio.low > 0.0 => ratio.high / ratio.low,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{handing, measured};
    use crate::record::{Quantity, Round};
    use crate::stats::interval::Interval;

    #[test]
    fn what_falls_behind_has_no_ratio() {
        let arrive = |per_second| {
            let mut result = measured("redis", 6);
            (result.workload, result.parties) = ("arrivals".to_owned(), 3000);
            result.per_second = per_second;
            Line::ours(&result, (127_500.0, None), None)
        };
        assert_eq!(arrive(2997.0).instead, None);
        let line = arrive(2249.0);
        assert_eq!(line.instead.as_deref(), Some("2249/s"));
        assert!(line.remarks.contains(&"falls behind: 2249 a second".to_owned()), "{:?}", line.remarks);
    }

    #[test]
    fn what_another_library_lacks_stands_beside_its_speed() {
        let mut result = measured("redis", 6);
        result.peers[0].lacks = Some("tokens".to_owned());
        let line = Line::peer(&result.peers[0], &result, (2.5, None));
        assert!(line.remarks.contains(&"lacks: tokens".to_owned()), "{:?}", line.remarks);
    }

    #[test]
    fn beside_the_rate_of_several_locks_stands_a_hand_over() {
        let mut result = measured("postgres", 6);
        result.quantity = Quantity::PerSecond;
        (result.handing, result.peers[0].handing) = (Some(handing(4)), Some(handing(4)));
        let told = |result: &Measurement| {
            let lines = [
                Line::ours(result, (3000.0, None), None),
                Line::peer(&result.peers[0], result, (9000.0, None)),
            ];
            lines.map(|line| line.remarks.iter().any(|remark| remark.starts_with("median hand-over ")))
        };
        assert_eq!(told(&result), [false; 2]);
        result.workload = "hot".to_owned();
        assert_eq!(told(&result), [true; 2]);
    }

    #[test]
    fn of_few_latencies_no_rare_one_is_told() {
        let mut result = measured("redis", 6);
        let tail = |samples, result: &mut Measurement| {
            result.latency_us.samples = samples;
            let Tail { p90, p99, p999 } = Tail::from(&result.latency_us);
            [p90, p99, p999].map(|share| share > 0.0)
        };
        assert_eq!(tail(20, &mut result), [true, false, false]);
        assert_eq!(tail(1000, &mut result), [true; 3]);
    }

    #[test]
    fn a_noisy_figure_is_no_surer_than_its_ratio() {
        let mut result = measured("redis", 6);
        result.ratio = Some(Interval { median: 1.2, low: 1.0, high: 1.5 });
        assert!((noise(&result) - 1.0).abs() < 1e-9);
        result.noisy = true;
        assert!((noise(&result) - 1.5).abs() < 1e-9);
        result.unsteady = true;
        result.rounds = [2.0, 1.0, 4.0].map(|floor| Round { ours: 1.0, floor }).into();
        assert!((noise(&result) - 4.0).abs() < 1e-9);
        result.rounds.clear();
        assert!(noise(&result).is_infinite());
    }
}
