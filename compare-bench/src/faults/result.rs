//! What comes of the runs: a line for each as it ends, a table, and a file.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::Table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checker::Findings;
use super::scenario::Expected;
use super::strike::Happened;
use crate::error::{Error, Result};

/// Whether it came as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub(crate) enum Verdict {
    AsExpected,
    Otherwise {
        reasons: Vec<String>,
    },
    /// The servers or the workers could not be run. It says nothing about the lock.
    NotRun {
        why: String,
    },
}

/// What was done, and what became of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Counts {
    /// Attempts to get a lock.
    pub(crate) operations: u64,
    pub(crate) grants: u64,
    /// Holds whose lease ran out.
    pub(crate) expired: u64,
    /// Holds that the server had ended before that.
    pub(crate) taken: u64,
    /// Releases without an answer.
    pub(crate) unknown: u64,
    /// Holds of workers that died.
    pub(crate) unfinished: u64,
    /// Attempts that failed, by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) unguarded_writes: u64,
    pub(crate) unguarded_lost: u64,
    pub(crate) guarded_writes: u64,
    pub(crate) guarded_lost: u64,
    /// Stale reads and writes that the guard refused.
    pub(crate) refused: u64,
    /// The longest time from the death of a holder to the next grant.
    pub(crate) recovery_ms: Option<u64>,
    /// How many holders were told of the end of their lease, and how late at most.
    pub(crate) told: u64,
    pub(crate) told_late_us: Option<u64>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) backend: String,
    /// The seed of the schedule.
    pub(crate) seed: u64,
    pub(crate) expected: Expected,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
    pub(crate) counts: Counts,
    pub(crate) findings: Findings,
    /// When the workers began, in nanoseconds of the boot clock like the faults.
    pub(crate) began: u64,
    /// The faults as they happened.
    pub(crate) happened: Vec<Happened>,
}

impl Outcome {
    /// One line.
    pub(crate) fn line(&self) -> String {
        let Counts { operations, unguarded_lost, guarded_lost, refused, .. } = self.counts;
        let head = format!("{:<24} {:<11}", self.scenario, self.backend);
        let tail = match &self.verdict {
            Verdict::AsExpected => format!("{}: as expected", self.expected.words()),
            Verdict::Otherwise { reasons } => {
                format!("{}: NOT AS EXPECTED: {}", self.expected.words(), reasons.join(", "))
            }
            Verdict::NotRun { why } => return format!("{head} not run: {why}"),
        };
        let overlaps = self.findings.overlaps + self.findings.overlaps_after_force;
        format!(
            "{head} {operations:>7} operations, {overlaps} overlaps, lost {unguarded_lost} unguarded {guarded_lost} \
             guarded, {refused} refused; {tail}"
        )
    }

    fn is_of(&self, scenario: &str, backend: &str, seed: u64) -> bool {
        self.scenario == scenario && self.backend == backend && self.seed == seed
    }
}

/// All runs.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Results {
    pub(crate) schema: String,
    pub(crate) outcomes: Vec<Outcome>,
}

/// What the file calls itself.
const SCHEMA: &str = "lockwell-faults-1";

impl Results {
    /// Those of a file, or none if there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self { schema: SCHEMA.to_owned(), outcomes: Vec::new() });
        }
        let results: Self = serde_json::from_str(&std::fs::read_to_string(path)?)
            .map_err(|error| Error::File(format!("{}: {error}", path.display())))?;
        if results.schema != SCHEMA {
            return Err(Error::File(format!("{} is not a file of results of faults", path.display())));
        }
        Ok(results)
    }

    /// Whether this run has been done.
    pub(crate) fn has(&self, scenario: &str, backend: &str, seed: u64) -> bool {
        let is_done = |outcome: &&Outcome| !matches!(outcome.verdict, Verdict::NotRun { .. });
        self.outcomes.iter().filter(is_done).any(|outcome| outcome.is_of(scenario, backend, seed))
    }

    /// Adds one, in the place of one of the same run that failed, and writes all to the file.
    pub(crate) fn add(&mut self, outcome: Outcome, path: &Path) -> Result<()> {
        self.outcomes.retain(|other| !other.is_of(&outcome.scenario, &outcome.backend, outcome.seed));
        self.outcomes.push(outcome);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::File(error.to_string()))?;
        let next = path.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(&next, path)?;
        Ok(())
    }

    /// Whether nothing came otherwise than expected and everything was run.
    pub(crate) fn are_well(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.verdict == Verdict::AsExpected)
    }

    /// The table of scenarios and backends, as in the documentation: what is expected, and how often it came so.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::ASCII_MARKDOWN);
        let backends = unique(self.outcomes.iter().map(|outcome| outcome.backend.as_str()));
        table.set_header(std::iter::once("scenario").chain(backends.iter().copied()));
        for scenario in unique(self.outcomes.iter().map(|outcome| outcome.scenario.as_str())) {
            let cells = backends.iter().map(|backend| self.cell(scenario, backend));
            table.add_row(std::iter::once(scenario.to_owned()).chain(cells));
        }
        table
    }

    fn cell(&self, scenario: &str, backend: &str) -> String {
        let of_cell = |outcome: &&Outcome| outcome.scenario == scenario && outcome.backend == backend;
        let runs: Vec<_> = self.outcomes.iter().filter(of_cell).collect();
        let Some(first) = runs.first() else { return "-".to_owned() };
        let well = runs.iter().filter(|run| run.verdict == Verdict::AsExpected).count();
        let operations: u64 = runs.iter().map(|run| run.counts.operations).sum();
        format!("{}: {well} of {}, {operations}", first.expected.words(), runs.len())
    }
}

/// Each once, in the order of their first appearance.
fn unique<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    seen
}
