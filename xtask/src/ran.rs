//! What the conformance suite ran, and on what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use testbed::Release;

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
    /// The remark for the end of a run.
    fn remark(&self) -> Option<String> {
        if let Some(why) = &self.missing {
            return Some(format!("not run: {} ({why})", self.target));
        }
        let release =
            Release::all().iter().find(|release| Some(release.name()) == self.release.as_deref())?;
        release.surprise(self.version.as_deref()?)
    }
}

/// Where the last whole run of each target is kept.
fn book() -> PathBuf {
    root().join("target/xtask/servers.json")
}

fn read(path: &Path) -> Result<Vec<Record>> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The file that the tests are to write, without one of an earlier run, and the file for what they did not
/// run.
pub(crate) fn fresh() -> Result<(PathBuf, PathBuf)> {
    let folder = root().join("target/xtask");
    let files = (folder.join("ran.json"), folder.join("not-run.txt"));
    let clear = || {
        fs::create_dir_all(&folder)?;
        for file in [&files.0, &files.1] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    };
    clear().map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(files)
}

/// The last whole run of each target.
pub(crate) fn known() -> Result<Vec<Record>> {
    read(&book())
}

/// Prints how long each target took, stores it, and returns the remarks for the end.
pub(crate) fn take(ran: &Path, not_run: &Path) -> Result<Vec<String>> {
    let new = read(ran)?;
    for Record { target, version, begun, passed, seconds, .. } in &new {
        let version = version.as_deref().unwrap_or_default();
        println!("{target:26} {version:10} {passed:4} of {begun:4} passed, {seconds:5} s together");
    }
    let mut remarks: Vec<_> = new.iter().filter_map(Record::remark).collect();
    let other = fs::read_to_string(not_run).unwrap_or_default();
    remarks.extend(other.lines().map(|line| format!("not run: {line}")));
    let merged = merge(known()?, new);
    let text = serde_json::to_string_pretty(&merged).map_err(|error| error.to_string())?;
    fs::write(book(), text).map_err(|error| format!("{}: {error}", book().display()))?;
    remarks.dedup();
    Ok(remarks)
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
        assert_eq!(record("redis8", "redis8", "8.0.2", 10).remark(), None);
        let other = record("redis8", "redis8", "8.4.0", 10).remark().expect("a surprise");
        assert!(other.contains("8.4.0") && other.contains("8.0"), "{other}");
        let missing = Record { missing: Some("no network".into()), ..record("valkey9", "valkey9", "", 0) };
        assert_eq!(missing.remark().as_deref(), Some("not run: valkey9 (no network)"));
    }

    #[test]
    fn the_last_whole_run_counts() {
        let old = vec![record("a", "redis7", "7.0.15", 9), record("b", "redis8", "8.0.2", 10)];
        let part = Record { begun: 1, ..record("b", "redis8", "8.0.3", 1) };
        let merged = merge(old.clone(), vec![record("a", "redis7", "7.0.16", 10), part]);
        assert_eq!(merged, [record("a", "redis7", "7.0.16", 10), old[1].clone()]);
    }
}
