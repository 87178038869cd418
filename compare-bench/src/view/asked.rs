//! The questions, and which figures answer them.

use crate::record::{Measurement, PeerResult, PeerRound};
use crate::stats::interval::Interval;
use crate::stats::median;
use crate::view::family::is_sql;
use crate::view::show::{Figure, Unit};

/// A question, and where its figures are.
pub(super) struct Asked {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) what: &'static str,
    pub(super) workloads: &'static [&'static str],
    /// `None` for the quantity of the workload.
    pub(super) unit: Option<Unit>,
    pub(super) ours: fn(&Measurement) -> Option<Figure>,
    pub(super) theirs: fn(&PeerResult) -> Option<Figure>,
    /// How ours compares with raw statements.
    pub(super) to_floor: fn(&Measurement) -> Option<Interval>,
}

/// What most questions have in common.
const USUAL: Asked = Asked {
    id: "",
    title: "",
    what: "",
    workloads: &[],
    unit: None,
    ours,
    theirs,
    to_floor: |result| result.ratio,
};

pub(super) const ASKED: [Asked; 12] = [
    Asked {
        id: "nobody",
        title: "Nobody else wants the lock",
        what: "Acquire and release of a free lock, one after the other: the median time.",
        workloads: &["uncontended"],
        ..USUAL
    },
    Asked {
        id: "many",
        title: "Many locks at once",
        what: "Tasks of one process, each with a lock of its own: acquisitions per second of all together.",
        workloads: &["independent"],
        to_floor: |result| if is_alike(result) { result.ratio } else { None },
        ..USUAL
    },
    Asked {
        id: "load",
        title: "Requests arrive at a rate",
        what: "From the arrival of a request to the end of its release, each on a free lock: the median time, and p99 beside it. \
               They contain what it costs to start a request, which is nearly all of the time of a lock within one process.",
        workloads: &["arrivals"],
        // The raw statements follow each other without a pause.
        to_floor: |_| None,
        ..USUAL
    },
    Asked {
        id: "processes",
        title: "Everybody wants one lock: several processes",
        what: "From the release by one process to the grant to the next (with one process: to its own next grant): the median time.",
        workloads: &["handoff"],
        theirs: |_| None,
        ..USUAL
    },
    Asked {
        id: "beside",
        title: "Everybody wants one lock: several processes, beside other libraries",
        what: "From the release by one process to the grant to the one that had waited longest, since without a queue another one \
             often gets the lock before: the median time.",
        workloads: &["handoff"],
        ours: fair,
        to_floor: fair_ratio,
        ..USUAL
    },
    Asked {
        id: "hot",
        title: "Two processes want each of several locks",
        what: "Grants a second of all locks together. The percentiles are from a release to the grant to the process that waited.",
        workloads: &["hot"],
        ..USUAL
    },
    Asked {
        id: "tasks",
        title: "Everybody wants one lock: many tasks of one process",
        what: "Acquisitions per second of all together.",
        workloads: &["crowd"],
        ..USUAL
    },
    Asked {
        id: "readers",
        title: "Many read, few write",
        what: "Tasks of one process on one lock, nine reads for each write: acquisitions per second of all together.",
        workloads: &["readers"],
        ..USUAL
    },
    Asked {
        id: "semaphore",
        title: "A few at a time",
        what: "A semaphore of four permits, and tasks of one process: acquisitions per second of all together.",
        workloads: &["semaphore"],
        ..USUAL
    },
    Asked {
        id: "server",
        title: "What waiting costs the server",
        what: "Requests that the servers received for each grant, by their own counts. The tasks of a process queue in it, and only the \
             first of them waits at the server.",
        workloads: &["crowd", "herd"],
        unit: Some(Unit::Count),
        ours: |result| requests(result.requests_each, &result.requests_rounds),
        theirs: |peer| requests(peer.requests_each, &peer.requests_rounds),
        // The ratio of the workload is one of rates.
        to_floor: |_| None,
    },
    Asked {
        id: "holding",
        title: "What holding costs",
        what: "A process holds locks and does nothing else. Processor time in each second, of client and servers together (10 ms are 1 % of \
             a core): the median.",
        workloads: &["holding"],
        theirs: |_| None,
        ..USUAL
    },
    Asked {
        id: "killed",
        title: "The process that holds the lock is killed",
        what: "From the kill to the grant to a process that waits: the median time. It is about a lease, which is 4 s of ours, or the shortest \
               that a backend has; locks without a lease end with their connection.",
        workloads: &["recovery"],
        to_floor: |_| None,
        ..USUAL
    },
];

#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every result has")]
fn ours(result: &Measurement) -> Option<Figure> {
    Some((result.ours, Interval::of(result.rounds.iter().map(|round| round.ours))))
}

/// Whether the raw statements had as many parties as ours: on an SQL database they have one connection, which
/// does one statement at a time.
pub(super) fn is_alike(result: &Measurement) -> bool {
    result.workload != "independent" || result.parties == 1 || !is_sql(&result.backend)
}

/// From a release to the process that had waited longest, which is what is measured of other libraries, and
/// of ours beside them.
fn fair(result: &Measurement) -> Option<Figure> {
    if result.peers.is_empty() {
        return None;
    }
    let rounds = fair_rounds(result)?;
    let times = || rounds.iter().map(|round| round.ours);
    Some((median(times()), Interval::of(times())))
}

fn fair_ratio(result: &Measurement) -> Option<Interval> {
    let rounds = fair_rounds(result)?;
    Interval::of(rounds.iter().filter(|round| round.floor > 0.0).map(|round| round.ours / round.floor))
}

fn fair_rounds(result: &Measurement) -> Option<&[PeerRound]> {
    // The rounds of each peer hold the same figures of ours.
    let most = result.peers.iter().max_by_key(|peer| peer.rounds.len())?;
    (!most.rounds.is_empty()).then_some(&*most.rounds)
}

#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every result has")]
fn theirs(peer: &PeerResult) -> Option<Figure> {
    Some((peer.theirs, Interval::of(peer.rounds.iter().map(|round| round.theirs))))
}

fn requests(each: Option<f64>, rounds: &[f64]) -> Option<Figure> {
    Some((each?, Interval::of(rounds.iter().copied())))
}
