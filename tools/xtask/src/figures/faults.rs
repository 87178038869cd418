//! What the runs of `compare-bench faults` showed, in numbers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::runs::{list, time};
use crate::figures::markdown::{row, rule};
use crate::shell::Result;

/// What these files call themselves.
pub(super) const SCHEMA: &str = "lockwell-faults-1";

/// Its columns.
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

/// The runs of one file, or of several with one name.
#[derive(Debug)]
pub(crate) struct Faults {
    /// That of the file up to the first dot.
    name: String,
    outcomes: Vec<Value>,
}

/// Of some of the runs.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    as_expected: u64,
    operations: u64,
    grants: u64,
    guarded_lost: u64,
    /// How many holders learned of a loss so late: by microseconds.
    lateness: BTreeMap<u64, u64>,
}

impl Faults {
    /// Only runs of commits are taken, and files in which each run could be made.
    pub(super) fn new(name: String, mut file: Value) -> Result<Self> {
        let outcomes: Vec<Value> = serde_json::from_value(file["outcomes"].take())
            .map_err(|error| format!("this is no file of faults: {error}"))?;
        for outcome in &outcomes {
            let of = format!("{} on {}, seed {}", outcome["scenario"], outcome["backend"], outcome["seed"]);
            if outcome["verdict"] == "not_run" {
                return Err(format!("{of}: it could not be run"));
            }
            if outcome["commit"].as_str().is_none_or(|commit| commit.ends_with('+')) {
                return Err(format!("{of}: this is not a run of a commit"));
            }
        }
        if outcomes.is_empty() {
            return Err("it has no runs".to_owned());
        }
        Ok(Self { name, outcomes })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the runs of another file of this name.
    pub(super) fn add(&mut self, more: Self) -> Result<()> {
        let run = |outcome: &Value| ["scenario", "backend", "seed"].map(|field| outcome[field].clone());
        if more.outcomes.iter().any(|other| self.outcomes.iter().any(|outcome| run(outcome) == run(other))) {
            return Err("two files have the same run of faults".to_owned());
        }
        self.outcomes.extend(more.outcomes);
        Ok(())
    }

    /// A row for each backend, and one for all of them.
    fn table(&self) -> String {
        let mut backends: Vec<&str> = Vec::new();
        for backend in self.outcomes.iter().filter_map(|outcome| outcome["backend"].as_str()) {
            if !backends.contains(&backend) {
                backends.push(backend);
            }
        }
        let mut table = self.about() + "\n\n" + &row(&HEAD.map(str::to_owned)) + &rule(HEAD.len());
        for backend in backends {
            let mut sum = Sum::default();
            self.outcomes.iter().filter(|outcome| outcome["backend"] == backend).for_each(|it| sum.add(it));
            table += &sum.row(backend);
        }
        let mut sum = Sum::default();
        self.outcomes.iter().for_each(|outcome| sum.add(outcome));
        table + &sum.row("all")
    }

    fn about(&self) -> String {
        let mut commits: Vec<&str> = Vec::new();
        for commit in self.outcomes.iter().filter_map(|outcome| outcome["commit"].as_str()?.get(..10)) {
            if !commits.contains(&commit) {
                commits.push(commit);
            }
        }
        let seconds: f64 = self.outcomes.iter().filter_map(|outcome| outcome["seconds"].as_f64()).sum();
        let minutes = (seconds / 60.0).round();
        let faults: usize = self.outcomes.iter().map(|outcome| list(&outcome["happened"]).count()).sum();
        let (runs, commits) = (self.outcomes.len(), commits.join(", "));
        format!("{runs} runs of {minutes} minutes together, with {faults} faults; commit {commits}:")
    }
}

impl Sum {
    fn add(&mut self, outcome: &Value) {
        let counts = &outcome["counts"];
        let number = |field: &str| counts[field].as_u64().unwrap_or_default();
        self.runs += 1;
        self.as_expected += u64::from(outcome["verdict"] == "as_expected");
        self.operations += number("operations");
        self.grants += number("grants");
        self.guarded_lost += number("guarded_lost");
        for pair in list(&counts["lateness"]) {
            if let (Some(late), Some(times)) = (pair[0].as_u64(), pair[1].as_u64()) {
                *self.lateness.entry(late).or_default() += times;
            }
        }
    }

    fn row(&self, name: &str) -> String {
        let told: u64 = self.lateness.values().sum();
        let mut below = 0;
        let half = self.lateness.iter().find(|(_, times)| {
            below += **times;
            2 * below >= told
        });
        // Microseconds of a run of seconds.
        let shown = |late: &u64| time(f64::from(u32::try_from(*late).unwrap_or(u32::MAX)));
        let late = half.zip(self.lateness.last_key_value());
        let late = late
            .map_or_else(String::new, |((half, _), (last, _))| format!("{}, {}", shown(half), shown(last)));
        row(&[
            name.to_owned(),
            self.runs.to_string(),
            self.as_expected.to_string(),
            self.operations.to_string(),
            self.grants.to_string(),
            self.guarded_lost.to_string(),
            told.to_string(),
            late,
        ])
    }
}

/// The table of the file of this name.
pub(super) fn faults(name: &str, all: &[Faults]) -> Result<String> {
    all.iter().find(|file| file.name == name).map(Faults::table).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|file| &*file.name).collect();
        format!("there is no file of faults {name:?}, but {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file() -> Value {
        let outcome = |backend: &str, verdict: &str, lateness: Value| {
            json!({
                "scenario": "calm", "backend": backend, "seed": 1, "commit": "0123456789abcdef", "verdict": verdict,
                "seconds": 45.0, "happened": [{}, {}],
                "counts": { "operations": 1000, "grants": 900, "guarded_lost": 0, "lateness": lateness },
            })
        };
        json!({ "schema": SCHEMA, "outcomes": [
            outcome("redis", "as_expected", json!([[700, 3], [9000, 1]])),
            outcome("redis", "otherwise", json!([])),
            outcome("sqlite", "as_expected", json!([])),
        ] })
    }

    #[test]
    fn runs_are_counted_by_backend() {
        let all = [Faults::new("faults".to_owned(), file()).unwrap()];
        let table = faults("faults", &all).unwrap();
        assert!(
            table.starts_with("3 runs of 2 minutes together, with 6 faults; commit 0123456789:\n\n|"),
            "{table}"
        );
        assert!(table.contains("| redis | 2 | 1 | 2000 | 1800 | 0 | 4 | 700 us, 9.00 ms |"), "{table}");
        assert!(table.contains("| sqlite | 1 | 1 | 1000 | 900 | 0 | 0 |  |"), "{table}");
        assert!(table.contains("| all | 3 | 2 | 3000 | 2700 | 0 | 4 | 700 us, 9.00 ms |"), "{table}");
        assert!(faults("soak", &all).unwrap_err().contains("faults"));
    }

    #[test]
    fn several_files_of_one_name_are_one() {
        let (mut all, mut other) = (Faults::new("faults".to_owned(), file()).unwrap(), file());
        let more = |file: &Value| Faults::new("faults".to_owned(), file.clone()).unwrap();
        assert!(all.add(more(&other)).unwrap_err().contains("same run"));
        for outcome in other["outcomes"].as_array_mut().unwrap() {
            outcome["backend"] = "zookeeper".into();
        }
        all.add(more(&other)).unwrap();
        let table = faults("faults", &[all]).unwrap();
        assert!(table.contains("| zookeeper | 3 | 2 | 3000 | 2700 | 0 | 4 | 700 us, 9.00 ms |"), "{table}");
        assert!(table.contains("| all | 6 | 4 | 6000 | 5400 | 0 | 8 | 700 us, 9.00 ms |"), "{table}");
    }

    #[test]
    fn only_whole_files_of_commits_are_taken() {
        for (field, value) in
            [("commit", json!(null)), ("commit", json!("0123456789+")), ("verdict", json!("not_run"))]
        {
            let mut file = file();
            file["outcomes"][1][field] = value;
            assert!(Faults::new("faults".to_owned(), file).unwrap_err().contains("calm"), "{field}");
        }
        assert!(Faults::new("faults".to_owned(), json!({ "outcomes": [] })).is_err());
    }
}
