//! What the runs of `compare-bench faults` showed, in numbers.

use std::collections::BTreeMap;

use faults::{Results, RunOutcome, Verdict};

use super::markdown::table;
use super::runs::{Evidence, commit};
use crate::error::{Error, Result};
use crate::stats::as_float;
use crate::view::{distinct, show};

const HEAD: [&str; 8] = [
    "",
    "runs",
    "as expected",
    "attempts to get a lock",
    "grants",
    "writes lost at the counter that checks the token",
    "holders told of the end of their lease",
    "how late: half of them, and the last",
];

/// The table of the runs of this name: a row for each backend, and one for all of them.
pub(super) fn faults(name: &str, evidence: &Evidence) -> Result<String> {
    let found = evidence.faults.iter().find(|(known, _)| known == name);
    let (_, results) = found.ok_or_else(|| Error::failed(format!("there is no file of faults {name:?}")))?;
    let outcomes = &results.outcomes;
    let of =
        |backend: &str| row(backend, &outcomes.iter().filter(|it| it.backend == backend).collect::<Vec<_>>());
    let backends = distinct(outcomes.iter().map(|outcome| &*outcome.backend));
    let rows = backends.into_iter().map(of).chain([row("all", &outcomes.iter().collect::<Vec<_>>())]);
    Ok(format!("{}\n\n{}", about(results), table(&HEAD.map(str::to_owned), rows)))
}

fn about(results: &Results) -> String {
    let outcomes = &results.outcomes;
    let commits = distinct(outcomes.iter().map(|outcome| commit(outcome.made.commit.as_deref())));
    let minutes = (outcomes.iter().map(|outcome| outcome.seconds).sum::<f64>() / 60.0).round();
    let faults: usize = outcomes.iter().map(|outcome| outcome.happened.len()).sum();
    let (runs, commits) = (outcomes.len(), commits.join(", "));
    format!("{runs} runs of {minutes} minutes together, with {faults} faults; commit {commits}:")
}

fn row(name: &str, outcomes: &[&RunOutcome]) -> Vec<String> {
    let sum = |count: fn(&RunOutcome) -> u64| outcomes.iter().map(|it| count(it)).sum::<u64>().to_string();
    let mut lateness = BTreeMap::<u64, u64>::new();
    for (late, times) in outcomes.iter().flat_map(|outcome| &outcome.counts.lateness) {
        *lateness.entry(*late).or_default() += times;
    }
    let told: u64 = lateness.values().sum();
    let mut below = 0;
    let half = lateness.iter().find(|(_, times)| {
        below += **times;
        2 * below >= told
    });
    let late = half.zip(lateness.last_key_value()).map_or_else(String::new, |(half, last)| {
        [half, last].map(|(late, _)| show::time(as_float(*late))).join(", ")
    });
    vec![
        name.to_owned(),
        outcomes.len().to_string(),
        sum(|it| u64::from(it.verdict == Verdict::AsExpected)),
        sum(|it| it.counts.operations),
        sum(|it| it.counts.grants),
        sum(|it| it.counts.guarded_lost),
        told.to_string(),
        late,
    ]
}
