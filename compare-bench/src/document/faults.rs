//! What each backend survives: the runs of `compare-bench faults`.

use std::collections::{BTreeMap, BTreeSet};

use faults::{Kind, Results, RunOutcome, Verdict};
use maud::{Markup, html};

use crate::document::grid::grid;

const DETAILS: [&str; 10] = [
    "scenario",
    "backend",
    "verdict",
    "operations",
    "overlaps",
    "writes lost without a check of tokens",
    "with one",
    "stale ones refused",
    "longest time from a holder's death to the next grant",
    "longest time in which nobody got a lock",
];

/// The runs of one scenario on one backend, together.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
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

    /// As the table of all figures has it.
    fn figures(&self, scenario: &str, backend: &str) -> Vec<String> {
        let words = [scenario.to_owned(), backend.to_owned(), self.word()].into_iter();
        let counts = [self.operations, self.overlaps, self.unguarded_lost, self.guarded_lost, self.refused];
        let spans = [self.recovery_ms, self.without_grant_ms].map(span);
        words.chain(counts.map(|count| count.to_string())).chain(spans).collect()
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
        (!names.is_empty()).then(|| format!("{}: {}", kind.name(), names.join(", ")))
    };
    Kind::ALL.iter().filter_map(of_kind).collect()
}

/// The section.
pub(super) fn section(results: &Results) -> Markup {
    let (scenarios, kinds, cells) = cells(results);
    let twice = seen_twice(results);
    let mut head = vec!["scenario"];
    head.extend(kinds.iter().map(|kind| kind.name()));
    let row = |scenario: &&str| {
        let word = |kind: &Kind| cells.get(&(*scenario, kind.name())).map_or_else(String::new, Cell::word);
        std::iter::once((*scenario).to_owned()).chain(kinds.iter().map(word)).collect()
    };
    let matrix: Vec<Vec<String>> = scenarios.iter().map(row).collect();
    let details = scenarios.iter().flat_map(|scenario| {
        let of = |kind: &Kind| Some(cells.get(&(*scenario, kind.name()))?.figures(scenario, kind.name()));
        kinds.iter().filter_map(of).collect::<Vec<_>>()
    });
    html! {
        p { "Workers took locks on real servers while these faults happened, and noted until when they considered themselves the holders. "
            b { "safe" } ": no two held a lock that must not, and it was granted again in time. "
            b { "told" } ": the same, and while the server could not be reached nobody considered itself the holder for more than a lease. "
            b { "lost" } ": as safe, but a holder may lose the lock before its lease ends, and is told. "
            b { "double" } ": two may hold it for a moment, and a resource that checks tokens loses nothing. \
             In brackets: in how many of the runs it was so, where it was not so in all." }
        @if !twice.is_empty() { p { b { "Two holders at once were seen" } " on " (twice.join("; on ")) "." } }
        (grid(&head, &matrix))
        ul { @for scenario in &scenarios { @if let Some(about) = faults::about(scenario) { li { b { (scenario) } ": " (about) } } } }
        p { (results.lateness()) "." }
        (grid(&DETAILS, &details.collect::<Vec<_>>()))
    }
}

fn span(millis: Option<u64>) -> String {
    millis.map_or_else(|| "-".to_owned(), |millis| format!("{millis} ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_with_two_holders_are_named() {
        let mut results: Results =
            serde_json::from_str(include_str!("../../tests/data/faults.json")).unwrap();
        let page = section(&results).into_string();
        assert!(page.contains(" on sqlite: client-clock; on sentinel: switchover; on "), "{page}");
        // An operator has freed the lock of one of the two.
        for outcome in &mut results.outcomes {
            outcome.findings.overlaps_after_force = std::mem::take(&mut outcome.findings.overlaps);
        }
        assert!(!section(&results).into_string().contains("Two holders at once were seen"));
    }
}
