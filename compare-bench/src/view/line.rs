//! One line of a figure.

use crate::measure::workload::arrivals::A_SECOND;
use crate::record::{Measurement, PeerResult};
use crate::stats::as_float;
use crate::stats::interval::Interval;
use crate::view::asked::is_alike;
use crate::view::show::{self, Figure};

/// One lock on one server.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The best is 1. Those whose intervals overlap that of the best among them share a rank. `None` of too
    /// few rounds, and of a lock that is of no use beyond its process.
    pub(crate) rank: Option<usize>,
    /// "redis", or "rslock 1.2 on redis".
    pub(crate) who: String,
    pub(crate) is_peer: bool,
    pub(crate) is_local: bool,
    /// Of a peer: two held its lock at once, it failed, or its recipe is unsafe. Its speed is not compared.
    pub(crate) is_unfit: bool,
    pub(crate) median: f64,
    pub(crate) value: Option<Interval>,
    /// In microseconds. Zero where there are too few.
    pub(crate) p99: f64,
    /// How it compares with raw statements.
    pub(crate) to_floor: Option<Interval>,
    /// Fairness, starvation, noise, errors.
    pub(crate) remarks: Vec<String>,
}

/// By the interval of the figure that is shown.
fn noisy(value: Option<Interval>) -> Option<String> {
    value.filter(|interval| !interval.is_precise()).map(|_| "noisy".to_owned())
}

impl Line {
    pub(super) fn ours(result: &Measurement, (median, value): Figure, to_floor: Option<Interval>) -> Self {
        let option = result.option.as_ref().map_or(String::new(), |option| format!(", {option}"));
        let is_local = result.backend == "memory";
        let mut remarks = Vec::new();
        let at = result.rate.filter(|_| result.parties_are != A_SECOND);
        remarks.extend(at.map(|rate| format!("{} requests a second", show::number(rate))));
        remarks.extend(behind(result).map(|rate| format!("falls behind: {} a second", show::number(rate))));
        remarks.extend(is_local.then(|| "one process only".to_owned()));
        remarks.extend(result.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(result.holding.iter().flat_map(show::holding));
        remarks.extend(result.handing.iter().flat_map(|handing| show::sharing(handing, result.quantity)));
        remarks.push(format!("{} rounds", result.rounds.len()));
        let alone = result.ratio.filter(|_| !is_alike(result));
        remarks.extend(alone.map(|ratio| format!("{ratio} times one raw connection")));
        // How long a lock stays taken after a kill lies between two bounds by its nature.
        remarks.extend(noisy(value).filter(|_| result.workload != "recovery"));
        remarks.extend(result.unsteady.then(|| "raw statements unsteady".to_owned()));
        Self {
            rank: None,
            who: format!("{}{option}", result.backend),
            is_peer: false,
            is_local,
            is_unfit: false,
            median,
            value,
            p99: result.latency_us.known_p99().unwrap_or_default(),
            to_floor,
            remarks,
        }
    }

    pub(super) fn peer(peer: &PeerResult, result: &Measurement, (median, value): Figure) -> Self {
        let version = peer.version.as_deref().map_or(String::new(), |version| format!(" {version}"));
        let mut remarks: Vec<_> = peer.error.iter().chain(&peer.unsafe_because).cloned().collect();
        remarks.extend(peer.wakeups_each.map(|each| format!("{each:.1} wake-ups each")));
        remarks.extend(peer.handing.iter().flat_map(|handing| show::sharing(handing, result.quantity)));
        remarks.extend(noisy(value).filter(|_| result.workload != "recovery"));
        remarks.extend(peer.lacks.iter().map(|lacks| format!("lacks: {lacks}")));
        let overlaps = peer.handing.as_ref().is_some_and(|handing| handing.overlaps > 0);
        Self {
            rank: None,
            who: format!("{}{version} on {}", peer.name, result.backend),
            is_peer: true,
            is_local: false,
            is_unfit: overlaps || peer.error.is_some() || peer.unsafe_because.is_some(),
            median,
            value,
            p99: peer.latency_us.known_p99().unwrap_or_default(),
            to_floor: peer.ratio,
            remarks,
        }
    }
}

/// The share of the rate of arrivals that is reached by whatever keeps up: the last answers of a round come
/// after its last request.
const KEEPS_UP: f64 = 0.9;

fn behind(result: &Measurement) -> Option<f64> {
    // Older files have the rate only where it was given.
    let given = (result.workload == "arrivals" && result.parties_are == A_SECOND).then_some(result.parties);
    let given = given.map(|parties| as_float(u64::try_from(parties).unwrap_or(u64::MAX)));
    let rate = result.rate.or(given)?;
    (result.per_second < KEEPS_UP * rate).then_some(result.per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::measured;

    #[test]
    fn what_falls_behind_is_told() {
        let arrive = |per_second| {
            let mut result = measured("redis", 6);
            (result.workload, result.parties) = ("arrivals".to_owned(), 3000);
            result.parties_are = A_SECOND.to_owned();
            result.per_second = per_second;
            Line::ours(&result, (127_500.0, None), None)
        };
        assert!(!arrive(2997.0).remarks.iter().any(|remark| remark.contains("behind")));
        let line = arrive(2249.0);
        assert!(line.remarks.contains(&"falls behind: 2249 a second".to_owned()), "{:?}", line.remarks);
    }

    #[test]
    fn a_rate_that_was_found_is_told_and_kept_up_with_or_not() {
        let arrive = |per_second| {
            let mut result = measured("redis", 6);
            (result.workload, result.parties, result.rate) = ("arrivals".to_owned(), 64, Some(3000.0));
            result.per_second = per_second;
            Line::ours(&result, (127_500.0, None), None).remarks
        };
        let told = "3000 requests a second".to_owned();
        let kept_up = arrive(2997.0);
        assert!(kept_up.contains(&told) && !kept_up.iter().any(|it| it.contains("behind")), "{kept_up:?}");
        let behind = arrive(2249.0);
        assert!(behind.contains(&told) && behind.contains(&"falls behind: 2249 a second".to_owned()));
    }

    #[test]
    fn a_figure_is_noisy_by_its_own_interval() {
        let interval = |low| Some(Interval { median: 3.0, low, high: 3.0 });
        let is_noisy = |workload: &str, low| {
            let mut result = measured("redis", 6);
            (result.noisy, result.workload) = (low > 2.9, workload.to_owned());
            let ours = Line::ours(&result, (3.0, interval(low)), None);
            let theirs = Line::peer(&result.peers[0], &result, (3.0, interval(low)));
            [ours, theirs].map(|line| line.remarks.contains(&"noisy".to_owned()))
        };
        assert_eq!(is_noisy("handoff", 2.0), [true, true], "also without a ratio");
        assert_eq!(is_noisy("handoff", 2.95), [false, false], "whatever its ratio is");
        assert_eq!(is_noisy("recovery", 2.0), [false, false]);
    }

    #[test]
    fn what_another_library_lacks_stands_beside_its_speed() {
        let mut result = measured("redis", 6);
        result.peers[0].lacks = Some("tokens".to_owned());
        let line = Line::peer(&result.peers[0], &result, (2.5, None));
        assert!(line.remarks.contains(&"lacks: tokens".to_owned()), "{:?}", line.remarks);
    }

    #[test]
    fn one_raw_connection_is_not_compared_as_if_it_were_many() {
        let told = |backend| {
            let mut result = measured(backend, 6);
            (result.workload, result.parties) = ("independent".to_owned(), 64);
            Line::ours(&result, (3.0, None), None).remarks.iter().any(|it| it.ends_with("one raw connection"))
        };
        assert!(told("postgres") && told("mariadb") && !told("redis"));
    }
}
