//! What ran where, for `cargo xtask test`, which asks for it by the variable `LOCKWELL_REPORT`: the path of a file.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::targets::Target;

/// How the cases of each target went.
#[derive(Debug, Default)]
pub(crate) struct Report {
    targets: Mutex<BTreeMap<String, Record>>,
}

#[derive(Debug, Default)]
struct Record {
    begun: usize,
    passed: usize,
    /// The time that its cases took, one after the other.
    took: Duration,
    /// Why some were not run.
    missing: Option<String>,
}

impl Report {
    fn with(&self, target: &Target, change: impl FnOnce(&mut Record)) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        change(targets.entry(target.name.clone()).or_default());
    }

    pub(crate) fn missing(&self, target: &Target, why: &str) {
        self.with(target, |record| record.missing = Some(why.to_owned()));
    }

    /// Runs a case and notes how it went. One that panics has not passed.
    pub(crate) fn watch<T>(&self, target: &Target, case: impl FnOnce() -> T) -> T {
        self.with(target, |record| record.begun += 1);
        let begun = Instant::now();
        let done = case();
        self.with(target, |record| {
            record.passed += 1;
            record.took += begun.elapsed();
        });
        done
    }

    /// Writes it down. `cases` says how many there are for a target.
    pub(crate) fn write<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a Target>,
        cases: impl Fn(&Target) -> usize,
    ) -> Result<(), String> {
        let Some(path) = std::env::var_os("LOCKWELL_REPORT") else { return Ok(()) };
        let records = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |target: &Target| -> Option<Value> {
            let record = records.get(&target.name)?;
            let version = target.release.filter(|_| record.begun > 0).map(testbed::Release::version);
            let version = version.transpose().unwrap_or_else(|error| Some(error.to_string()));
            Some(json!({
                "target": target.name,
                "release": target.release.map(testbed::Release::name),
                "version": version,
                "cases": cases(target),
                "begun": record.begun,
                "passed": record.passed,
                "seconds": record.took.as_secs(),
                "missing": record.missing,
            }))
        };
        let all: Vec<Value> = targets.into_iter().filter_map(of).collect();
        let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
        std::fs::write(&path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}
