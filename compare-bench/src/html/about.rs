//! What stands beside the figures: where they come from, what the backends promise, how it was measured.

use maud::{Markup, html};

use crate::html::survival;
use crate::record::{HOW_TO_READ, Report};
use crate::terminal::DEBUG;
use crate::view::family::{in_words, survives_restart};
use crate::view::{show, trust};
use faults::Results;

/// What each promise means, in the order of the table.
const PROMISES: [(&str, &str); 10] = [
    ("across_hosts", "between hosts"),
    ("fencing", "fencing tokens that rise"),
    ("failover_safe", "a failover grants nothing twice"),
    ("durable", "survives a restart of the server"),
    ("fifo", "waiters in order"),
    ("push", "waiters are notified"),
    ("herd_free", "a release does not wake all waiters"),
    ("loss_push", "the server notifies of a loss"),
    ("shared", "readers and writers"),
    ("permits", "semaphores"),
];

/// What is wrong with the runs.
pub(crate) fn warnings(runs: &[Report]) -> Markup {
    html! {
        @for run in runs {
            @if run.build.profile == "debug" { p.warning { (DEBUG) } }
            @if let Some(violation) = &run.violation {
                p.warning { "THE LOCK DID NOT EXCLUDE. " (violation.workload) " on " (violation.backend) ": " (violation.reason) }
            }
        }
    }
}

/// A table from `Capabilities`, and from runs of faults.
pub(crate) fn guarantees(runs: &[Report], faults: &[Results]) -> Markup {
    let mut backends: Vec<_> = runs.iter().flat_map(|run| &run.backends).collect();
    backends.sort_by(|one, other| one.name.cmp(&other.name));
    backends.dedup_by(|one, other| one.name == other.name);
    if backends.is_empty() {
        return html! { p.absent { "Not measured: no backend could be reached." } };
    }
    html! {
        p { "What each backend promises to its clients. The last column shows what it did under faults: "
            a href="#faults" { "step by step" } "." }
        div.wide { table {
            thead { tr {
                th { "backend" }
                @for (_, words) in PROMISES { th { (words) } }
                th.n { "shortest lease" } th { "seen under faults" }
            } }
            tbody { @for backend in &backends { tr {
                td { (in_words(&backend.name)) }
                @for (name, _) in PROMISES {
                    @let is_so = if name == "durable" { survives_restart(backend) } else { backend.promises.get(name) == Some(&true) };
                    td { @if is_so { "yes" } @else { "no" } }
                }
                td.n { (show::time(crate::stats::as_float(backend.shortest_lease_us))) }
                td { @let seen: Vec<String> = faults.iter().filter_map(|one| survival::seen(one, &backend.name)).collect();
                    @if seen.is_empty() { "not measured" } @else { (seen.join("; ")) } }
            } } }
        } }
    }
}

/// Which other libraries took part, and how they were set up.
pub(crate) fn libraries(runs: &[Report]) -> Markup {
    let results = runs.iter().flat_map(|run| &run.results);
    let peers = results.flat_map(|result| result.peers.iter().map(move |peer| (result, peer)));
    // What is all right is told once for each backend, and what is not for each case.
    let mut rows: Vec<_> = peers
        .map(|(result, peer)| {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
            let overlaps = peer.handing.as_ref().map_or(0, |handing| handing.overlaps);
            let is_well = overlaps == 0 && peer.error.is_none();
            let case = if is_well { String::new() } else { format!("{}, {}", result.workload, result.case) };
            (
                peer.name.clone(),
                result.backend.clone(),
                text(&peer.version),
                text(&peer.setup),
                peer.lacks.clone().unwrap_or_default(),
                case.clone(),
                overlaps,
                peer.error.as_ref().or(peer.unsafe_because.as_ref()).cloned(),
            )
        })
        .collect();
    rows.sort();
    rows.dedup();
    if rows.is_empty() {
        return html! { p.absent { "Not measured: --peers measures other libraries beside lockwell." } };
    }
    html! {
        p { "They do the same work, in turns with lockwell. Their figures are in the same tables." }
        div.wide { table {
            thead { tr {
                th { "library" } th { "on" } th { "version" } th { "set up" } th { "lacks" } th { "case" } th.n { "times two held it at once" } th { "what is wrong" }
            } }
            tbody { @for (name, backend, version, setup, lacks, case, overlaps, error) in &rows { tr {
                td { (name) } td { (in_words(backend)) } td { (version) } td { (setup) } td { (lacks) } td { (case) } td.n { (overlaps) } td { (error.as_deref().unwrap_or("")) }
            } } }
        } }
    }
}

/// How it was measured, on what, and how to do it again.
pub(crate) fn method(runs: &[Report]) -> Markup {
    html! {
        p { (HOW_TO_READ) }
        p { "A case is repeated until the interval of its ratio is within 5 % of the median to either side, or until its time is up; \
             then it is called noisy. Ours, the raw statements and other libraries take turns. Tokens and turns are checked: two that \
             hold the lock at once, or a token that does not rise, end the run. Except where requests \
             arrive at a rate, the loop is closed: a task asks again when it has its answer, so that latencies under load do not count \
             requests that would have come in the meantime. If several runs had the same conditions, each lock is shown from the first of them that has it." }
        @for run in runs {
            h3 { "Run of " (run.date) }
            @if let Some(doubt) = trust::doubt(run) { p.warning { "These figures are not to be used: " (doubt) "." } }
            (one(run))
        }
    }
}

fn one(run: &Report) -> Markup {
    let machine = &run.machine;
    html! {
        p { code { "compare-bench " (run.arguments.join(" ")) } }
        div.wide { table { tbody {
            tr { th { "machine" } td { (machine.host) ", " (machine.cpu) ", " (machine.cores) " cores, " (machine.memory_mib) " MiB" } }
            tr { th { "kernel" } td { (machine.kernel) } }
            tr { th { "load in the minute before" } td { (format!("{:.2}", run.load_before)) } }
            tr { th { "conditions" } td { (show::conditions(&run.conditions)) } }
            @if let Some(disk) = &run.disk {
                tr { th { "a sync of the disk" } td { (disk.file_system) ": half take at most " (show::time(disk.sync_us.p50)) ", 99 % at most " (show::time(disk.sync_us.p99)) } }
            }
            tr { th { "length" } td { "a " (run.mode) " run of " (run.seconds.round()) " s" } }
            tr { th { "build" } td {
                (run.build.version) ", " (run.build.profile) ", commit " (run.build.git_commit.as_deref().unwrap_or("?"))
                @if run.build.git_dirty == Some(true) { " with changes" }
            } }
            @for again in &run.resumed { tr { th { "gone on with" } td { (again) } } }
            @for failure in &run.failures { tr { th { "failed" } td { (failure.workload) ", " (failure.case) " on " (failure.backend) ": " (failure.reason) } } }
        } } }
        div.wide { table {
            thead { tr { th { "backend" } th { "server" } th { "data" } th { "settings" } th { "raw statements" } } }
            tbody { @for backend in &run.backends { tr {
                td { (in_words(&backend.name)) } td { (backend.version) } td { (backend.storage) }
                td { @for (name, value) in &backend.settings { (name) "=" (value) " " } }
                td { (backend.floor) }
            } } }
        } }
    }
}
