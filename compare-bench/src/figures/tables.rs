//! The tables: each by its name.

use super::runs::{Evidence, Run};
use crate::error::{Error, Result};
use crate::record::{Measurement, PeerResult, Report};
use crate::stats::{as_float, median};
use crate::view::show::Unit;
use crate::view::{distinct, show};

/// Makes the text of a block from the figures of a run.
type Fill = fn(&Run) -> String;

const BLOCKS: [(&str, Fill); 5] =
    [("run", about), ("summary", summary), ("headline", headline), ("peers", peers), ("recovery", recovery)];

/// The table of this name.
pub(super) fn of_run(name: &str, run: &str, evidence: &Evidence) -> Result<String> {
    let Some((_, fill)) = BLOCKS.iter().find(|(known, _)| *known == name) else {
        let names = BLOCKS.map(|(name, _)| name).join(", ");
        return Err(Error::failed(format!("{name:?} is none of delays, faults, {names}")));
    };
    Ok(fill(evidence.named(run)?))
}

pub(super) fn table(head: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rows: String = rows.into_iter().map(|cells| row(&cells)).collect();
    format!("{}|{}\n{rows}", row(head), "---|".repeat(head.len()))
}

fn rate(each_second: f64) -> String {
    show::plain(Unit::Rate, each_second).replace(" /s", "/s")
}

fn time(result: Option<&Measurement>) -> String {
    result.map_or_else(String::new, |result| show::time(result.ours))
}

fn per_second(result: Option<&Measurement>) -> String {
    result.map_or_else(String::new, |result| rate(result.ours))
}

/// Machine, commit, date, servers: what a reader has to know.
fn about(run: &Run) -> String {
    let of = |report: &Report| {
        let (machine, build, conditions) = (&report.machine, &report.build, &report.conditions);
        let servers = report.backends.iter().map(|it| {
            // The version of memory says where it is.
            let on = if it.version.starts_with("in ") { "" } else { "on " };
            format!("{} {on}{}", it.name, it.version)
        });
        format!(
            "{}, {} cores, {}; data on {}, durability `{}`; commit {:.10}, {:.10}: {}.",
            machine.cpu,
            machine.cores,
            machine.kernel,
            conditions.storage,
            conditions.durability,
            build.git_commit.as_deref().unwrap_or("?"),
            report.date,
            servers.collect::<Vec<_>>().join(", "),
        )
    };
    run.reports.iter().map(of).collect::<Vec<_>>().join("\n\n") + "\n"
}

/// Of a backend the case with the most parties of all backends, which the head of the column names.
fn most<'a>(run: &'a Run, backend: &str, workload: &str) -> Option<&'a Measurement> {
    run.last(backend, workload).filter(|result| result.parties == run.parties(workload))
}

/// All backends on what people ask first.
fn headline(run: &Run) -> String {
    let head = [
        String::new(),
        "acquire + release, median".to_owned(),
        "to raw statements [95 %]".to_owned(),
        format!("{} tasks, a name each", run.parties("independent")),
        format!("{} processes, one name: from a release to the next holder, median", run.parties("handoff")),
        format!("{} tasks of one process, one name", run.parties("crowd")),
    ];
    let row = |backend| {
        let of = |workload| most(run, backend, workload);
        let ratio = of("uncontended").and_then(|result| result.ratio);
        vec![
            backend.to_owned(),
            time(of("uncontended")),
            ratio.map_or_else(String::new, |ratio| ratio.to_string()),
            per_second(of("independent")),
            time(of("handoff")),
            per_second(of("crowd")),
        ]
    };
    table(&head, run.backends().into_iter().map(row))
}

/// One backend of each kind, for a reader who has a minute.
fn summary(run: &Run) -> String {
    const ROWS: [(&str, &str); 7] = [
        ("sqlite", "SQLite"),
        ("postgres", "PostgreSQL"),
        ("mariadb", "MariaDB"),
        ("redis", "Redis"),
        ("redlock", "Redlock of 5"),
        ("zookeeper3", "ZooKeeper of 3"),
        ("etcd3", "etcd of 3"),
    ];
    let head = [
        String::new(),
        "a free lock: acquire and release".to_owned(),
        format!("hand-over between {} processes", run.parties("handoff")),
        "free again after its holder was killed".to_owned(),
    ];
    let row = |(backend, name): (&str, &str)| {
        let mut faults = run.results("recovery").filter(|it| it.backend == backend);
        vec![
            name.to_owned(),
            time(most(run, backend, "uncontended")),
            time(most(run, backend, "handoff")),
            time(faults.find(|it| it.case == "the holder is killed")),
        ]
    };
    table(&head, ROWS.map(row))
}

/// What a library is compared by, in one workload, and ours beside it.
#[derive(Clone, Copy)]
struct Compared {
    workload: &'static str,
    ours: fn(&Measurement) -> Option<String>,
    theirs: fn(&PeerResult) -> Option<String>,
}

/// From a release to the process that had waited longest, as of other libraries.
fn to_the_first(result: &Measurement) -> Option<String> {
    let is_fit =
        |peer: &&PeerResult| peer.unsafe_because.is_none() && peer.rounds.len() == result.rounds.len();
    let beside = result.peers.iter().find(is_fit)?;
    Some(show::time(median(beside.rounds.iter().map(|round| round.ours))))
}

const COMPARED: [Compared; 5] = [
    Compared {
        workload: "uncontended",
        ours: |it| Some(show::time(it.ours)),
        theirs: |it| Some(show::time(it.theirs)),
    },
    Compared { workload: "handoff", ours: to_the_first, theirs: |it| Some(show::time(it.theirs)) },
    Compared {
        workload: "handoff",
        ours: |it| Some(show::plain(Unit::Count, it.handing.as_ref()?.jain)),
        theirs: |it| Some(show::plain(Unit::Count, it.handing.as_ref()?.jain)),
    },
    Compared {
        workload: "handoff",
        ours: |it| Some(it.handing.as_ref()?.overlaps.to_string()),
        theirs: |it| Some(it.handing.as_ref()?.overlaps.to_string()),
    },
    Compared { workload: "crowd", ours: |it| Some(rate(it.ours)), theirs: |it| Some(rate(it.theirs)) },
];

/// Other libraries beside ours on the same servers in the same rounds.
fn peers(run: &Run) -> String {
    let head = [
        String::new(),
        "acquire + release, median".to_owned(),
        format!(
            "{} processes, one name: from a release to the one that waited longest, median",
            run.parties("handoff")
        ),
        "Jain's index".to_owned(),
        "two holders at once".to_owned(),
        format!("{} tasks, one name", run.parties("crowd")),
    ];
    let mut rows = Vec::new();
    for backend in run.backends() {
        let results = COMPARED.map(|it| (run.last(backend, it.workload), it));
        let peers = results[0].0.into_iter().flat_map(|result| &result.peers);
        // A faulty recipe is no library.
        let libraries: Vec<_> = peers.filter(|peer| peer.unsafe_because.is_none()).collect();
        if !libraries.is_empty() {
            let ours = results.iter().map(|(result, it)| result.and_then(it.ours).unwrap_or_default());
            rows.push(std::iter::once(format!("lockwell on {backend}")).chain(ours).collect());
        }
        for PeerResult { name, version, .. } in libraries {
            let find = |result: Option<&'_ Measurement>, it: &Compared| {
                of_peer(result?.peers.iter().find(|peer| peer.name == *name)?, it.theirs)
            };
            let theirs = results.iter().map(|(result, it)| find(*result, it).unwrap_or_default());
            let who = format!("{name} {}", version.as_deref().unwrap_or_default());
            rows.push(std::iter::once(who).chain(theirs).collect());
        }
    }
    table(&head, rows)
}

fn of_peer(peer: &PeerResult, figure: fn(&PeerResult) -> Option<String>) -> Option<String> {
    if peer.error.is_some() { Some("failed".to_owned()) } else { figure(peer) }
}

/// The times from each fault to the next grant, and the longest that it should take.
fn recovery(run: &Run) -> String {
    let faults = distinct(run.results("recovery").map(|result| &*result.case));
    let row = |backend: &str| {
        let of = |fault| {
            let mut results = run.results("recovery").filter(|it| it.backend == backend);
            results.find(|it| it.case == fault).and_then(times_and_bound).unwrap_or_default()
        };
        let cells: Vec<String> = faults.iter().copied().map(of).collect();
        let is_there = cells.iter().any(|cell| !cell.is_empty());
        is_there.then(|| [vec![backend.to_owned()], cells].concat())
    };
    let head: Vec<String> = [""].iter().chain(&faults).map(|it| (*it).to_owned()).collect();
    table(&head, run.backends().into_iter().filter_map(row))
}

/// The median, the shortest and the longest time, and the bound that follows from the settings.
fn times_and_bound(result: &Measurement) -> Option<String> {
    let recovery = result.recovery.as_ref()?;
    let times = || recovery.times_us.iter().copied();
    let (shortest, longest) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
    let range = format!("{} [{} .. {}]", show::time(result.ours), show::time(shortest), show::time(longest));
    let Some(bound) = recovery.bound_us else { return Some(range) };
    Some(match times().filter(|one| *one > bound).count() {
        0 => format!("{range}, at most {}", show::time(bound)),
        late => format!("{range}, {late} of {} later than {}", times().count(), show::time(bound)),
    })
}

/// The medians of a workload in all runs with a delay, and how many round trips it takes: the slope between
/// the shortest and the longest delay.
pub(super) fn delays(workload: &str, evidence: &Evidence) -> Result<String> {
    let runs: Vec<&Run> = evidence.runs.iter().filter(|run| run.delay_us() > 0).collect();
    let [first, .., last] = runs[..] else {
        return Err(Error::failed("there are not two runs with a delay"));
    };
    let mut head = vec![String::new()];
    head.extend(runs.iter().map(|run| format!("{} each way", show::time(as_float(run.delay_us())))));
    head.push("round trips".to_owned());
    let row = |backend: &str| {
        let of = |run: &Run| run.last(backend, workload).map(|result| result.ours);
        let trips = (of(last)? - of(first)?) / (2.0 * as_float(last.delay_us() - first.delay_us()));
        let mut cells = vec![backend.to_owned()];
        cells.extend(runs.iter().map(|run| of(run).map_or_else(String::new, show::time)));
        cells.push(format!("{trips:.1}"));
        Some(cells)
    };
    Ok(table(&head, last.backends().into_iter().filter_map(row)))
}
