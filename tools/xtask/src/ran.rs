//! What the conformance suite ran, and on what.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use testbed::Release;

use crate::not_run::NotRun;
use crate::shell::{Result, root};

/// How the cases went on one target. The suite writes these, see `tests/support/report.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) target: String,
    /// The release that it is, if it is a server.
    pub(crate) release: Option<String>,
    /// What the program itself said.
    pub(crate) version: Option<String>,
    /// How many cases there are for it.
    pub(crate) cases: usize,
    pub(crate) begun: usize,
    pub(crate) passed: usize,
    /// The time of all its cases together, of which some ran at the same time.
    pub(crate) seconds: u64,
    /// Why cases were not run.
    pub(crate) missing: Option<String>,
}

impl Record {
    /// Its cases, if its server is missing.
    fn not_run(&self) -> Option<NotRun> {
        self.missing.as_ref().map(|why| NotRun {
            program: self.target.clone(),
            test: String::new(),
            part: String::new(),
            why: why.clone(),
            is_beyond: false,
        })
    }

    /// The remark for the end of a run on a server of another version.
    fn surprise(&self) -> Option<String> {
        let release =
            Release::all().iter().find(|release| Some(release.name()) == self.release.as_deref())?;
        release.surprise(self.version.as_deref()?)
    }
}

/// Where runs have their logs and notes, unless they are told another folder.
pub(crate) fn folder() -> PathBuf {
    root().join("target/xtask")
}

/// Where the last whole run of each target is kept.
fn book(folder: &Path) -> PathBuf {
    folder.join("servers.json")
}

fn read(path: &Path) -> Result<Vec<Record>> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The file in this folder that the tests are to write, without one of an earlier run.
pub(crate) fn fresh(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("ran.json");
    match fs::create_dir_all(folder).and_then(|()| fs::remove_file(&file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(file),
    }
}

/// The last whole run of each target.
pub(crate) fn known() -> Result<Vec<Record>> {
    read(&book(&folder()))
}

/// Prints how long each target took, and stores it in this folder. Returns the targets that are missing, and
/// remarks for the end.
pub(crate) fn take(folder: &Path, ran: &Path) -> Result<(Vec<NotRun>, Vec<String>)> {
    let new = read(ran)?;
    for Record { target, version, begun, passed, seconds, .. } in &new {
        let version = version.as_deref().unwrap_or_default();
        println!("{target:26} {version:10} {passed:4} of {begun:4} passed, {seconds:5} s together");
    }
    let missing = new.iter().filter_map(Record::not_run).collect();
    let surprises: BTreeSet<_> = new.iter().filter_map(Record::surprise).collect();
    let book = book(folder);
    let merged = merge(read(&book)?, new);
    let text = serde_json::to_string_pretty(&merged).map_err(|error| error.to_string())?;
    fs::write(&book, text).map_err(|error| format!("{}: {error}", book.display()))?;
    Ok((missing, surprises.into_iter().collect()))
}

/// A run of only some cases is not a result for the target.
fn merge(old: Vec<Record>, new: Vec<Record>) -> Vec<Record> {
    let whole = new.into_iter().filter(|record| record.begun == record.cases);
    let all = old.into_iter().chain(whole).map(|record| (record.target.clone(), record));
    all.collect::<BTreeMap<_, _>>().into_values().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(target: &str, release: &str, version: &str, passed: usize) -> Record {
        Record {
            target: target.to_owned(),
            release: Some(release.to_owned()),
            version: Some(version.to_owned()),
            cases: 10,
            begun: 10,
            passed,
            seconds: 1,
            missing: None,
        }
    }

    #[test]
    fn a_missing_server_and_an_unexpected_version_are_told() {
        let expected = record("redis8", "redis8", "8.0.2", 10);
        assert_eq!((expected.surprise(), expected.not_run()), (None, None));
        let other = record("redis8", "redis8", "8.4.0", 10).surprise().expect("a surprise");
        assert!(other.contains("8.4.0") && other.contains("8.0"), "{other}");
        let missing = Record { missing: Some("no network".into()), ..record("valkey9", "valkey9", "", 0) };
        let not_run = missing.not_run().expect("it is missing");
        assert_eq!((not_run.program.as_str(), not_run.why.as_str()), ("valkey9", "no network"));
        assert!(!not_run.is_beyond);
    }

    #[test]
    fn the_last_whole_run_counts() {
        let old = vec![record("a", "redis7", "7.0.15", 9), record("b", "redis8", "8.0.2", 10)];
        let part = Record { begun: 1, ..record("b", "redis8", "8.0.3", 1) };
        let merged = merge(old.clone(), vec![record("a", "redis7", "7.0.16", 10), part]);
        assert_eq!(merged, [record("a", "redis7", "7.0.16", 10), old[1].clone()]);
    }
}
