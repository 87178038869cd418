//! The tables: each by its name.

use super::markdown::table;
use super::runs::{Evidence, Run, commit};
use super::{arrivals, cell, sentence};
use crate::error::{Error, Result};
use crate::record::{Handing, Measurement, PeerResult, Quantity, Report};
use crate::stats::{as_float, median};
use crate::view::family::standing;
use crate::view::show::Unit;
use crate::view::{distinct, show};

/// Makes the text of a block from the figures of a run.
type Fill = fn(&Run) -> String;

const BLOCKS: [(&str, Fill); 4] = [
    ("headline", headline),
    ("peers", peers),
    ("arrivals", arrivals::arrivals),
    ("session-locks", sentence::session_locks),
];

/// The table of this name.
pub(super) fn of_run(name: &str, run: &str, evidence: &Evidence) -> Result<String> {
    let Some((_, fill)) = BLOCKS.iter().find(|(known, _)| *known == name) else {
        let names = BLOCKS.map(|(name, _)| name).join(", ");
        return Err(Error::failed(format!("{name:?} is none of run, summary, delays, faults, {names}")));
    };
    Ok(fill(evidence.named(run)?))
}

/// Machine, commit, date, servers: what a reader has to know. The commit is told where the page has not named
/// it last.
pub(super) fn about(run: &Run, named: &mut Option<String>) -> String {
    let mut of = |report: &Report| {
        let (machine, conditions) = (&report.machine, &report.conditions);
        let servers = report.backends.iter().map(|it| {
            // The version of memory says where it is.
            let on = if it.version.starts_with("in ") { "" } else { "on " };
            format!("{} {on}{}", it.name, it.version)
        });
        let commit = commit(report.build.git_commit.as_deref());
        let told = if named.as_ref() == Some(&commit) { String::new() } else { format!("commit {commit}, ") };
        *named = Some(commit);
        format!(
            "{}, {} cores, {}; data on {}, durability `{}`; {told}{:.10}, load {:.2} before it: {}.",
            machine.cpu,
            machine.cores,
            machine.kernel,
            conditions.storage,
            conditions.durability,
            report.date,
            report.load_before,
            servers.collect::<Vec<_>>().join(", "),
        )
    };
    run.reports.iter().map(&mut of).collect::<Vec<_>>().join("\n\n") + "\n"
}

/// Of a backend the case with the most parties of all backends, which the head of the column names.
pub(super) fn most<'a>(run: &'a Run, backend: &str, workload: &str) -> Option<&'a Measurement> {
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
        let shown = |workload| of(workload).map_or_else(String::new, cell::ours);
        vec![
            backend.to_owned(),
            shown("uncontended"),
            of("uncontended").map_or_else(String::new, cell::ratio),
            shown("independent"),
            shown("handoff"),
            shown("crowd"),
        ]
    };
    table(&head, run.backends().into_iter().map(row))
}

/// What a library is compared by, in one workload, and ours beside it.
#[derive(Clone, Copy)]
struct Compared {
    workload: &'static str,
    ours: fn(&Run, &Measurement) -> Option<String>,
    theirs: fn(&PeerResult, Quantity) -> Option<String>,
}

/// From a release to the process that had waited longest, as of other libraries.
fn to_the_first(_: &Run, result: &Measurement) -> Option<String> {
    let is_fit =
        |peer: &&PeerResult| peer.unsafe_because.is_none() && peer.rounds.len() == result.rounds.len();
    let beside = result.peers.iter().find(is_fit)?;
    let ours = || beside.rounds.iter().map(|round| round.ours);
    Some(cell::of_rounds(Unit::Time, median(ours()), ours()))
}

/// Others keep no queue in their process, so that in which each task has a place at the server stands beside.
#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every result has")]
fn of_tasks(run: &Run, result: &Measurement) -> Option<String> {
    let ordered = run.with_option(result, "server_order=true");
    let ordered = ordered.map_or_else(String::new, |it| format!("; `server_order` {}", cell::ours(it)));
    Some(format!("{}{ordered}", cell::ours(result)))
}

/// Fairness, and whether two held it at once.
fn fairness(handing: Option<&Handing>) -> Option<String> {
    let Handing { jain, overlaps, .. } = handing?;
    let twice = if *overlaps == 0 { String::new() } else { format!("; {overlaps} times two holders") };
    Some(format!("{}{twice}", show::plain(Unit::Count, *jain)))
}

#[expect(clippy::unnecessary_wraps, reason = "as one of those that not every result has")]
fn theirs(peer: &PeerResult, quantity: Quantity) -> Option<String> {
    Some(cell::theirs(peer, quantity))
}

const COMPARED: [Compared; 5] = [
    Compared { workload: "uncontended", ours: |_, it| Some(cell::ours(it)), theirs },
    Compared { workload: "handoff", ours: to_the_first, theirs },
    Compared {
        workload: "handoff",
        ours: |_, it| fairness(it.handing.as_ref()),
        theirs: |it, _| fairness(it.handing.as_ref()),
    },
    Compared { workload: "crowd", ours: of_tasks, theirs },
    Compared {
        workload: "recovery",
        ours: |_, it| Some(cell::our_range(it)),
        theirs: |it, _| Some(cell::their_range(it)),
    },
];

/// Other libraries beside ours on the same servers in the same rounds: of each family of servers one.
fn peers(run: &Run) -> String {
    let killed = run.results("recovery").any(|result| !result.peers.is_empty());
    let head = [
        String::new(),
        "acquire + release, median".to_owned(),
        format!(
            "{} processes, one name: from a release to the one that waited longest, median",
            run.parties("handoff")
        ),
        "Jain's index".to_owned(),
        format!("{} tasks of one process, one name", run.parties("crowd")),
        format!("free after a kill{}", if killed { "" } else { " (others: not yet)" }),
    ];
    let mut rows = Vec::new();
    for backend in standing(run.backends().into_iter()) {
        let results = COMPARED.map(|it| match it.workload {
            "recovery" => (run.killed(backend), it),
            workload => (run.last(backend, workload), it),
        });
        let peers = results[0].0.into_iter().flat_map(|result| &result.peers);
        // A faulty recipe is no library.
        let libraries: Vec<_> = peers.filter(|peer| peer.unsafe_because.is_none()).collect();
        if !libraries.is_empty() {
            let ours = results
                .iter()
                .map(|(result, it)| result.and_then(|result| (it.ours)(run, result)).unwrap_or_default());
            rows.push(std::iter::once(format!("lockwell on {backend}")).chain(ours).collect());
        }
        for PeerResult { name, version, .. } in libraries {
            let find = |result: Option<&Measurement>, it: &Compared| -> Option<String> {
                let result = result?;
                let peer = result.peers.iter().find(|peer| peer.name == *name)?;
                if peer.error.is_some() {
                    return Some("failed".to_owned());
                }
                (it.theirs)(peer, result.quantity)
            };
            let theirs = results.iter().map(|(result, it)| find(*result, it).unwrap_or_default());
            let who = format!("{name} {}", version.as_deref().unwrap_or_default());
            rows.push(std::iter::once(who).chain(theirs).collect());
        }
    }
    table(&head, rows)
}

/// The medians of a workload in all runs with a delay, and how many round trips it takes: the slope between
/// the shortest and the longest delay, which is as noisy as these two. Before them: what runs these are.
pub(super) fn delays(workload: &str, evidence: &Evidence) -> Result<String> {
    let runs: Vec<&Run> = evidence.runs.iter().filter(|run| run.delay_us() > 0).collect();
    let [first, .., last] = runs[..] else {
        return Err(Error::failed("there are not two runs with a delay"));
    };
    let mut head = vec![String::new()];
    head.extend(runs.iter().map(|run| format!("{} each way", show::time(as_float(run.delay_us())))));
    head.push("round trips".to_owned());
    let row = |backend: &str| {
        let [far, near] = [last.last(backend, workload)?, first.last(backend, workload)?];
        let trips = (far.ours - near.ours) / (2.0 * as_float(last.delay_us() - first.delay_us()));
        let mark = if cell::is_noisy(far) || cell::is_noisy(near) { "~ " } else { "" };
        let mut cells = vec![backend.to_owned()];
        let of = runs.iter().map(|run| run.last(backend, workload).map_or_else(String::new, cell::ours));
        cells.extend(of);
        cells.push(format!("{mark}{trips:.1}"));
        Some(cells)
    };
    let commits = distinct(runs.iter().flat_map(|run| run.commits())).join(", ");
    let reports = || runs.iter().flat_map(|run| &run.reports);
    let dates = distinct(reports().map(|report| format!("{:.10}", report.date))).join(", ");
    let load = reports().map(|report| report.load_before).fold(0.0, f64::max);
    let about = format!("Commit {commits}, {dates}, load {load:.2} at most before a run.");
    Ok(format!("{about}\n\n{}", table(&head, last.backends().into_iter().filter_map(row))))
}
