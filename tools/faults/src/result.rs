//! What comes of the runs: a line for each as it ends, a table, and a file.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::excerpt::Excerpt;
use super::inject::Happened;
use super::scenario::Expected;
use crate::checker::rules::Findings;
use crate::error::{Error, Result};
use crate::made::Made;

/// Whether it came as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict")]
pub enum Verdict {
    /// As the table of scenarios says.
    AsExpected,
    /// In another way.
    Otherwise {
        /// What differs.
        reasons: Vec<String>,
    },
    /// The servers or the workers could not be started, or a fault could not be made. It says nothing about
    /// the lock.
    NotRun {
        /// What failed.
        why: String,
    },
}

/// What was done, and what became of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Attempts to get a lock.
    pub operations: u64,
    /// Attempts that got it.
    pub grants: u64,
    /// Holds whose lease ran out.
    pub expired: u64,
    /// Holds that the server had ended before that.
    pub taken: u64,
    /// Releases without an answer.
    pub unknown: u64,
    /// Holds of workers that died.
    pub unfinished: u64,
    /// Attempts that failed, by kind.
    pub errors: BTreeMap<String, u64>,
    /// Writes to the witness that does not check tokens.
    pub unguarded_writes: u64,
    /// Those of them that were lost.
    pub unguarded_lost: u64,
    /// Writes to the witness that checks tokens.
    pub guarded_writes: u64,
    /// Those of them that were lost.
    pub guarded_lost: u64,
    /// Stale reads and writes that the guard refused.
    pub refused: u64,
    /// The longest time from the death of a holder to the next grant.
    pub recovery_ms: Option<u64>,
    /// The longest time in which nobody was granted any lock, while and after servers were in trouble.
    #[serde(default)]
    pub without_grant_ms: Option<u64>,
    /// How many holders were told of the end of their lease.
    pub told: u64,
    /// How late at most.
    pub told_late_us: Option<u64>,
    /// How late they were told, from when their process could run again: microseconds at most, and how often.
    /// Not of processes of which that is not known.
    #[serde(default)]
    pub lateness: Vec<(u64, u64)>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunOutcome {
    /// The name of the scenario.
    pub scenario: String,
    /// The name of the backend.
    pub backend: String,
    /// The seed of the schedule.
    pub seed: u64,
    #[serde(flatten)]
    /// What it was made of.
    pub made: Made,
    /// What the table of scenarios says.
    pub expected: Expected,
    #[serde(flatten)]
    /// Whether it came so.
    pub verdict: Verdict,
    /// How long it took.
    pub seconds: f64,
    /// What was done.
    pub counts: Counts,
    /// What the checker found.
    pub findings: Findings,
    /// When the workers began, in nanoseconds of the boot clock like the faults.
    pub began: u64,
    /// The faults as they happened.
    pub happened: Vec<Happened>,
    /// What a timeline is drawn from.
    #[serde(default)]
    pub excerpt: Option<Excerpt>,
}

impl RunOutcome {
    /// One line.
    pub fn line(&self) -> String {
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
}

/// All runs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order in which they ended.
    pub outcomes: Vec<RunOutcome>,
}

/// What the file calls itself.
pub const SCHEMA: &str = "lockwell-faults-1";

impl Results {
    /// Those of a file, or none if there is no such file.
    pub fn read(path: &Path) -> Result<Self> {
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

    /// Adds one, in the place of one of the same run, and writes all to the file.
    pub fn add(&mut self, outcome: RunOutcome, path: &Path) -> Result<()> {
        let run = |one: &RunOutcome| (one.scenario.clone(), one.backend.clone(), one.seed);
        self.outcomes.retain(|other| run(other) != run(&outcome));
        self.outcomes.push(outcome);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::File(error.to_string()))?;
        let next = path.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(&next, path)?;
        Ok(())
    }

    /// How late holders were told of the end of their lease, in all runs together.
    pub fn lateness(&self) -> String {
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        for (late, number) in self.outcomes.iter().flat_map(|outcome| &outcome.counts.lateness) {
            *numbers.entry(*late).or_default() += number;
        }
        let all: u64 = numbers.values().sum();
        let Some((longest, _)) = numbers.last_key_value() else { return "no lease has run out".to_owned() };
        // So many of a thousand are not later than that.
        let share = |thousandths: u64| {
            let mut below = 0;
            let found = numbers.iter().find(|(_, number)| {
                below += **number;
                below * 1000 >= all * thousandths
            });
            found.map_or(*longest, |(late, _)| *late)
        };
        let (half, most) = (share(500), share(999));
        format!(
            "{all} holders told of the end of their lease: half of them at most {half} us late, 99.9 % {most} us, and all {longest} us"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seed: u64, lateness: Vec<(u64, u64)>) -> RunOutcome {
        RunOutcome {
            scenario: "calm".to_owned(),
            backend: "redis".to_owned(),
            seed,
            made: Made::default(),
            expected: Expected::Safe,
            verdict: Verdict::AsExpected,
            seconds: 5.0,
            counts: Counts { lateness, ..Counts::default() },
            findings: Findings::default(),
            began: 0,
            happened: Vec::new(),
            excerpt: None,
        }
    }

    #[test]
    fn percentiles_are_of_all_runs_together() {
        let outcomes =
            vec![outcome(1, vec![(100, 600), (2_000, 398)]), outcome(2, vec![(2_000, 1), (50_000, 1)])];
        let results = Results { schema: SCHEMA.to_owned(), outcomes };
        let said = results.lateness();
        assert!(said.starts_with("1000 holders"), "{said}");
        assert!(said.contains("at most 100 us late, 99.9 % 2000 us, and all 50000 us"), "{said}");
        assert_eq!(Results::default().lateness(), "no lease has run out");
    }

    #[test]
    fn a_run_takes_the_place_of_the_same_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.json");
        let mut results = Results::read(&path).unwrap();
        results.add(outcome(3, vec![(7, 2)]), &path).unwrap();
        results.add(outcome(4, Vec::new()), &path).unwrap();
        let verdict = Verdict::NotRun { why: "cc: not found".to_owned() };
        results.add(RunOutcome { verdict: verdict.clone(), ..outcome(3, Vec::new()) }, &path).unwrap();
        let read = Results::read(&path).unwrap().outcomes;
        let runs: Vec<_> = read.iter().map(|one| (one.seed, &one.verdict)).collect();
        assert_eq!(runs, [(4, &Verdict::AsExpected), (3, &verdict)]);
    }

    #[test]
    fn results_of_earlier_versions_are_read() {
        let text = include_str!("../../../compare-bench/tests/data/faults.json");
        let results: Results = serde_json::from_str(text).unwrap();
        assert!(results.outcomes.iter().all(|outcome| outcome.made == Made::default()), "{results:?}");
        assert!(!results.outcomes.is_empty());
    }
}
