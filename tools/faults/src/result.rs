//! What comes of the runs: a line for each as it ends, a table, and a file.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::Table;
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
    /// Of a run of random faults that came otherwise: which of them suffice, and how often of how many times.
    #[serde(default)]
    pub shrunk: Option<Shrunk>,
}

/// Faults that suffice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shrunk {
    /// Their numbers in the schedule of the seed.
    pub faults: Vec<usize>,
    /// How often they sufficed.
    pub seen: u64,
    /// How often they were tried.
    pub tried: u64,
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

    fn is_of(&self, scenario: &str, backend: &str, seed: u64) -> bool {
        self.scenario == scenario && self.backend == backend && self.seed == seed
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

    /// This run, if it could be made, whatever it was made of.
    pub(crate) fn done(&self, scenario: &str, backend: &str, seed: u64) -> Option<&RunOutcome> {
        let is_done = |outcome: &&RunOutcome| !matches!(outcome.verdict, Verdict::NotRun { .. });
        self.outcomes.iter().filter(is_done).find(|outcome| outcome.is_of(scenario, backend, seed))
    }

    /// Whether this run has been done, with what it would be made of now.
    pub fn has(&self, scenario: &str, backend: &str, seed: u64, made: &Made) -> bool {
        self.done(scenario, backend, seed).is_some_and(|outcome| outcome.made.is_same(made))
    }

    /// Adds one, in the place of one of the same run that failed or was made of something else, and writes
    /// all to the file.
    pub fn add(&mut self, outcome: RunOutcome, path: &Path) -> Result<()> {
        self.outcomes.retain(|other| !other.is_of(&outcome.scenario, &outcome.backend, outcome.seed));
        self.outcomes.push(outcome);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::File(error.to_string()))?;
        let next = path.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(&next, path)?;
        Ok(())
    }

    /// Whether this run, made of this, came as expected.
    pub fn is_well(&self, scenario: &str, backend: &str, seed: u64, made: &Made) -> bool {
        let run = self.done(scenario, backend, seed).filter(|outcome| outcome.made == *made);
        run.is_some_and(|outcome| outcome.verdict == Verdict::AsExpected)
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

    /// The table of scenarios and backends, as in the documentation: what is expected, and how often it came
    /// so.
    pub fn table(&self) -> Table {
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
        let of_cell = |outcome: &&RunOutcome| outcome.scenario == scenario && outcome.backend == backend;
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with this to say about the lateness of `lost()`.
    pub(crate) fn outcome(seed: u64, lateness: Vec<(u64, u64)>) -> RunOutcome {
        RunOutcome {
            scenario: "calm".to_owned(),
            backend: "redis".to_owned(),
            seed,
            made: made("0123"),
            expected: Expected::Safe,
            verdict: Verdict::AsExpected,
            seconds: 5.0,
            counts: Counts { lateness, ..Counts::default() },
            findings: Findings::default(),
            began: 0,
            happened: Vec::new(),
            excerpt: None,
            shrunk: None,
        }
    }

    fn made(commit: &str) -> Made {
        Made { commit: Some(commit.to_owned()), hold_us: Some(1_000), ..Made::default() }
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
    fn what_is_written_is_read_and_earlier_files_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.json");
        let mut results = Results::read(&path).unwrap();
        results.add(outcome(3, vec![(7, 2)]), &path).unwrap();
        let mut text = std::fs::read_to_string(&path).unwrap();
        assert!(Results::read(&path).unwrap().is_well("calm", "redis", 3, &made("0123")));
        // What was not there in the first version.
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let one = json["outcomes"][0].as_object_mut().unwrap();
        assert!(one.remove("excerpt").is_some() && one.remove("shrunk").is_some());
        assert!(one.remove("commit").is_some() && one.remove("hold_us").is_some());
        assert!(one.remove("releases").is_some() && one.remove("contender").is_some());
        assert!(one["findings"].as_object_mut().unwrap().remove("ended_badly").is_some());
        assert!(one["counts"].as_object_mut().unwrap().remove("lateness").is_some());
        text = json.to_string();
        std::fs::write(&path, text).unwrap();
        let results = Results::read(&path).unwrap();
        assert_eq!(results.done("calm", "redis", 3).unwrap().made, Made::default());
        // Nobody knows of what commit it was.
        assert!(!results.has("calm", "redis", 3, &Made::default()));
    }

    #[test]
    fn only_the_same_run_made_of_the_same_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.json");
        let mut results = Results::read(&path).unwrap();
        results.add(outcome(3, Vec::new()), &path).unwrap();
        let (same, other) = (made("0123"), made("4567"));
        assert!(results.has("calm", "redis", 3, &same) && results.is_well("calm", "redis", 3, &same));
        assert!(!results.has("calm", "redis", 4, &same) && !results.is_well("calm", "redis", 4, &same));
        assert!(!results.has("calm", "redis", 3, &other) && !results.is_well("calm", "redis", 3, &other));
        assert!(results.done("calm", "redis", 3).is_some());

        // It takes the place of the other. With changes it is well, and is made again all the same.
        let changed = made("4567+");
        results.add(RunOutcome { made: changed.clone(), ..outcome(3, Vec::new()) }, &path).unwrap();
        assert_eq!(results.outcomes.len(), 1);
        assert!(!results.has("calm", "redis", 3, &changed) && results.is_well("calm", "redis", 3, &changed));
        let verdict = Verdict::NotRun { why: "cc: not found".to_owned() };
        results.add(RunOutcome { verdict, ..outcome(3, Vec::new()) }, &path).unwrap();
        assert!(!results.has("calm", "redis", 3, &same) && results.done("calm", "redis", 3).is_none());
    }

    #[test]
    fn results_of_earlier_versions_are_read() {
        let text = include_str!("../../../compare-bench/tests/data/faults.json");
        let results: Results = serde_json::from_str(text).unwrap();
        assert!(results.outcomes.iter().all(|outcome| outcome.made == Made::default()), "{results:?}");
        assert!(!results.outcomes.is_empty());
    }
}
