//! What each backend survives: the runs of `compare-bench faults`.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};

use crate::error::Result;
use crate::html::timeline;
use crate::view::family::in_words;
use faults::{Kind, Results, RunOutcome, Verdict};

/// So many timelines are shown at most: of what came otherwise first, then of the scenarios in turn.
const MOST: usize = 24;

/// The runs of one scenario on one backend, together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    expected: &'static str,
    runs: usize,
    well: usize,
    failed: usize,
    operations: u64,
    overlaps: u64,
    unguarded_lost: u64,
    guarded_lost: u64,
    refused: u64,
    recovery_ms: Option<u64>,
    without_grant_ms: Option<u64>,
}

impl Cell {
    fn add(&mut self, outcome: &RunOutcome) {
        let counts = &outcome.counts;
        self.expected = outcome.expected.word();
        self.runs += 1;
        self.well += usize::from(outcome.verdict == Verdict::AsExpected);
        self.failed += usize::from(matches!(outcome.verdict, Verdict::NotRun { .. }));
        self.operations += counts.operations;
        self.overlaps += outcome.findings.overlaps + outcome.findings.overlaps_after_force;
        self.unguarded_lost += counts.unguarded_lost;
        self.guarded_lost += counts.guarded_lost;
        self.refused += counts.refused;
        self.recovery_ms = self.recovery_ms.max(counts.recovery_ms);
        self.without_grant_ms = self.without_grant_ms.max(counts.without_grant_ms);
    }

    /// As the matrix has it.
    fn word(&self) -> String {
        match self.runs - self.failed {
            0 => "not run".to_owned(),
            done if done == self.well => self.expected.to_owned(),
            done => format!("{} ({} of {done})", self.expected, self.well),
        }
    }

    fn level(&self) -> &'static str {
        match (self.runs - self.failed, self.expected) {
            (0, _) => "",
            (done, _) if done != self.well => "m4",
            (_, "safe") => "m0",
            (_, "told" | "lost") => "m1",
            _ => "m2",
        }
    }
}

/// By scenario and backend.
type Cells<'a> = BTreeMap<(&'a str, &'a str), Cell>;

/// All cells, in the order of the first runs of their scenarios, and of the backends.
fn cells(results: &Results) -> (Vec<&str>, Vec<Kind>, Cells<'_>) {
    let mut scenarios: Vec<&str> = Vec::new();
    let mut cells = Cells::new();
    for outcome in &results.outcomes {
        if !scenarios.contains(&&*outcome.scenario) {
            scenarios.push(&outcome.scenario);
        }
        cells.entry((outcome.scenario.as_str(), outcome.backend.as_str())).or_default().add(outcome);
    }
    let is_there = |kind: &Kind| cells.keys().any(|(_, backend)| *backend == kind.name());
    let kinds = Kind::ALL.into_iter().filter(is_there).collect();
    (scenarios, kinds, cells)
}

/// What was seen of a backend, for the table of guarantees.
pub(super) fn seen(results: &Results, backend: &str) -> Option<String> {
    // Faults are put on three nodes, where the comparison has five.
    let name = if backend == "redlock" { Kind::Redlock3.name() } else { backend };
    let mut all = Cell::default();
    let mut unsafe_cells = 0;
    for outcome in results.outcomes.iter().filter(|outcome| outcome.backend == name) {
        // What was not run says nothing about the lock.
        if !matches!(outcome.verdict, Verdict::NotRun { .. }) {
            all.add(outcome);
            unsafe_cells += usize::from(outcome.expected.word() == "guard");
        }
    }
    let done = all.runs;
    (done > 0).then(|| {
        let (well, operations, lost) = (all.well, all.operations, all.guarded_lost);
        format!(
            "{well} of {done} runs as expected ({unsafe_cells} of them may overlap); {operations} operations, {lost} guarded writes lost"
        )
    })
}

/// What was seen of the setups that stand for a family, for a reader who knows no scenario.
pub(super) fn told(results: &[Results], backend: &str) -> Option<String> {
    let names = match backend {
        "redlock" => vec!["redlock3"],
        // One server alone has no failover.
        "redis" | "valkey" => vec!["redis", "sentinel"],
        other => vec![other],
    };
    let runs = || {
        let all = results.iter().flat_map(|one| &one.outcomes);
        all.filter(|it| names.contains(&&*it.backend) && !matches!(it.verdict, Verdict::NotRun { .. }))
    };
    let faults: BTreeSet<&str> = runs().map(|it| &*it.scenario).collect();
    let twice = with_two_holders(runs());
    let lost: u64 = runs().map(|it| it.counts.guarded_lost).sum();
    let lost = if lost == 0 { String::new() } else { format!(", {lost} checked writes lost") };
    let named = match &twice.iter().copied().collect::<Vec<_>>()[..] {
        [] => "never two holders in".to_owned(),
        [one] => format!("two holders in {one}, 1 of"),
        // There is little room, and the link leads to their names.
        many => format!("two holders seen in {} of", many.len()),
    };
    (!faults.is_empty()).then(|| format!("{named} {} kinds of faults{lost}", faults.len()))
}

/// The scenarios of the runs in which two held a lock at once, without an operator who had freed it.
fn with_two_holders<'a>(runs: impl Iterator<Item = &'a RunOutcome>) -> BTreeSet<&'a str> {
    runs.filter(|it| it.findings.overlaps > 0).map(|it| &*it.scenario).collect()
}

/// These scenarios of each backend that has any.
fn seen_twice(results: &Results) -> Vec<String> {
    let of_kind = |kind: &Kind| {
        let is_of_kind =
            |it: &&RunOutcome| it.backend == kind.name() && !matches!(it.verdict, Verdict::NotRun { .. });
        let names: Vec<&str> =
            with_two_holders(results.outcomes.iter().filter(is_of_kind)).into_iter().collect();
        (!names.is_empty()).then(|| format!("{}: {}", full(kind.name()), names.join(", ")))
    };
    Kind::ALL.iter().filter_map(of_kind).collect()
}

/// The section.
pub(super) fn section(results: &Results) -> Result<Markup> {
    let (scenarios, kinds, cells) = cells(results);
    let pictures = pictures(results)?;
    Ok(html! {
        p { "Workers took locks on real servers while these faults happened, and noted until when they considered themselves the holders. "
            b { "safe" } ": no two held a lock that must not, and it was granted again in time. "
            b { "told" } ": the same, and while the server could not be reached nobody considered itself the holder for more than a lease. "
            b { "lost" } ": as safe, but a holder may lose the lock before its lease ends, and is told. "
            b { "guard" } ": two may hold it for a moment, and a resource that checks tokens loses nothing. \
             In brackets: in how many of the runs it was so, where it was not so in all." }
        @let twice = seen_twice(results);
        @if !twice.is_empty() { p { b { "Two holders at once were seen" } " on " (twice.join("; on ")) ". What these names mean is below the table." } }
        div.wide { table.matrix {
            caption { "What each backend survives. The details are below." }
            thead { tr { th { "scenario" } @for kind in &kinds { th.n { (full(kind.name())) } } } }
            tbody { @for scenario in &scenarios { tr {
                td { (scenario) }
                @for kind in &kinds { (word(cells.get(&(*scenario, kind.name())))) }
            } } }
        } }
        details {
            summary { "What happens in each scenario" }
            ul { @for scenario in &scenarios { @if let Some(about) = faults::about(scenario) { li { b { (scenario) } ": " (about) } } } }
        }
        p.faint { (results.lateness()) "." }
        h3 { "Step by step" }
        @if pictures.is_empty() { p.faint { "These runs kept no histories." } }
        @for picture in &pictures { (picture) }
        h3 { "All figures" }
        div.wide { table {
            thead { tr {
                th { "scenario" } th { "backend" } th { "verdict" } th.n { "operations" } th.n { "overlaps" }
                th.n { "writes lost without a check of tokens" } th.n { "with one" } th.n { "stale ones refused" }
                th.n { "longest time from a holder's death to the next grant" } th.n { "longest time in which nobody got a lock" }
            } }
            tbody { @for scenario in &scenarios { @for kind in &kinds {
                @if let Some(cell) = cells.get(&(*scenario, kind.name())) { tr {
                    td { (scenario) } td { (full(kind.name())) } td { (cell.word()) } td.n { (cell.operations) }
                    td.n { (cell.overlaps) } td.n { (cell.unguarded_lost) } td.n { (cell.guarded_lost) } td.n { (cell.refused) }
                    td.n { (span(cell.recovery_ms)) } td.n { (span(cell.without_grant_ms)) }
                } }
            } } }
        } }
    })
}

/// The full name of a backend. Workers reach any server of an ensemble.
fn full(backend: &str) -> String {
    if backend == Kind::Zookeeper3.name() { "ZooKeeper of three".to_owned() } else { in_words(backend) }
}

fn word(cell: Option<&Cell>) -> Markup {
    html! { @if let Some(cell) = cell { td.(cell.level()) { (cell.word()) } } @else { td {} } }
}

fn span(millis: Option<u64>) -> String {
    millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis} ms"))
}

/// Timelines, each with its table.
fn pictures(results: &Results) -> Result<Vec<Markup>> {
    let is_odd = |outcome: &&RunOutcome| matches!(outcome.verdict, Verdict::Otherwise { .. });
    let mut chosen: Vec<&RunOutcome> = results.outcomes.iter().filter(is_odd).collect();
    // Of each scenario one, on another backend each time: all would make a long page.
    let mut shown: Vec<(&str, usize)> = Vec::new();
    for outcome in results.outcomes.iter().filter(|outcome| !is_odd(outcome)) {
        let times =
            |backend: &str| shown.iter().find(|(name, _)| *name == backend).map_or(0, |(_, times)| *times);
        let same = results.outcomes.iter().filter(|other| other.scenario == outcome.scenario);
        let of_scenario = same.filter(|other| other.excerpt.is_some());
        let best = of_scenario.min_by_key(|other| times(&other.backend));
        let is_new = !chosen.iter().any(|other| other.scenario == outcome.scenario);
        if let Some(best) = best.filter(|_| is_new) {
            match shown.iter_mut().find(|(name, _)| *name == best.backend) {
                Some((_, times)) => *times += 1,
                None => shown.push((&best.backend, 1)),
            }
            chosen.push(best);
        }
    }
    chosen.retain(|outcome| outcome.excerpt.is_some());
    chosen.truncate(MOST);
    chosen.into_iter().map(picture).collect()
}

fn picture(outcome: &RunOutcome) -> Result<Markup> {
    let Some(excerpt) = &outcome.excerpt else { return Ok(html! {}) };
    let (scenario, backend, seed) = (&outcome.scenario, &outcome.backend, outcome.seed);
    let backend = full(backend);
    let title = format!("{scenario} on {backend}, seed {seed}: who was the holder of lock {}", excerpt.lock);
    let svg = timeline::draw(&title, excerpt, &outcome.happened, outcome.began)?;
    Ok(html! {
        figure {
            figcaption {
                (title) ". Grey: the fault, in the row of what it happened to. Orange: two at once. A dot: a stale read or write that the guard refused."
            }
            div.wide { (PreEscaped(svg)) }
        }
        div.wide { table {
            thead { tr { th { "worker" } th { "mode" } th.n { "token" } th.n { "from" } th.n { "to" } th { "how it ended" } } }
            tbody {
                @for one in timeline::longest(excerpt) { tr {
                    td { (one.worker) } td { (one.mode) } td.n { (one.token) } td.n { (at(one.from)) } td.n { (at(one.until)) } td { (one.end) }
                } }
                @for fault in &outcome.happened { tr {
                    td { (timeline::row_of(fault)) } td { (fault.planned.fault.words()) } td {}
                    td.n { (at(since(fault.from, outcome.began))) } td.n { (at(since(fault.until, outcome.began))) } td {}
                } }
            }
        } }
    })
}

fn since(nanos: u64, began: u64) -> u64 {
    nanos.saturating_sub(began) / 1000
}

/// Microseconds, as seconds.
fn at(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_with_two_holders_are_named() {
        let mut results: Results =
            serde_json::from_str(include_str!("../../tests/data/faults.json")).unwrap();
        let said = |results: &Results, backend: &str| told(std::slice::from_ref(results), backend);
        let expected = "two holders in client-clock, 1 of 3 kinds of faults";
        assert_eq!(said(&results, "sqlite").as_deref(), Some(expected));
        assert_eq!(said(&results, "memory"), None);
        let page = section(&results).unwrap().into_string();
        assert!(
            page.contains(" on SQLite: client-clock; on Redis behind Sentinel: switchover; on "),
            "{page}"
        );
        // More than there is room for above.
        for outcome in &mut results.outcomes {
            outcome.findings.overlaps = u64::from(outcome.backend == "sqlite");
        }
        let expected = "two holders seen in 3 of 3 kinds of faults";
        assert_eq!(said(&results, "sqlite").as_deref(), Some(expected));
        assert_eq!(seen_twice(&results), ["SQLite: cancelled, client-clock, holder-killed"]);
        // An operator has freed the lock of one of the two.
        for outcome in &mut results.outcomes {
            outcome.findings.overlaps_after_force = std::mem::take(&mut outcome.findings.overlaps);
        }
        assert_eq!(said(&results, "sqlite").as_deref(), Some("never two holders in 3 kinds of faults"));
        assert!(!section(&results).unwrap().into_string().contains("Two holders at once were seen"));
    }
}
