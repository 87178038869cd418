//! Tests that fail, and pass when they are repeated alone.
//!
//! A flaky test is a bug in the code or in the test. One of them does not stop the work of others; it is
//! named at the end of the run, and the ledger remembers it. A run with two of them fails, and so does one
//! whose flaky test is in the ledger three times.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::shell::{Result, root, text};

/// How many flaky tests a run may have, and how often the ledger may have the same one.
const IN_A_RUN: usize = 1;
const IN_THE_LEDGER: usize = 2;

/// How many characters of what a flaky test wrote are kept: of its begin, which often has a seed, and of its
/// end.
const TEXT: (usize, usize) = (200, 400);

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flake {
    pub(crate) date: String,
    pub(crate) commit: String,
    /// The program and its test.
    pub(crate) test: String,
    /// What it wrote, without its middle. Cases of the suite write their seed, and how late the machine was.
    pub(crate) text: String,
    /// What its program wrote, where that is kept. It is a file of this machine, so the ledger does not have
    /// it.
    #[serde(skip)]
    log: Option<PathBuf>,
}

impl Flake {
    /// One that was found now.
    pub(crate) fn found(test: String, wrote: &str, log: Option<PathBuf>) -> Result<Self> {
        let commit = text(Command::new("git").current_dir(root()).args(["rev-parse", "--short", "HEAD"]))?;
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Ok(Self { date, commit: commit.trim().to_owned(), test, text: without_middle(wrote.trim()), log })
    }
}

/// The begin and the end of a long text.
fn without_middle(text: &str) -> String {
    let length = text.chars().count();
    if length <= TEXT.0 + TEXT.1 {
        return text.to_owned();
    }
    let begin: String = text.chars().take(TEXT.0).collect();
    let end: String = text.chars().skip(length - TEXT.1).collect();
    format!("{begin}\n[...]\n{end}")
}

/// The ledger: a JSON object in each line, so that two branches that each add one merge.
pub(crate) fn path() -> PathBuf {
    root().join("tests/flakes.jsonl")
}

fn read(path: &Path) -> Result<Vec<Flake>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", path.display(), at + 1))
    });
    parsed.collect()
}

/// Adds them to the ledger, and judges the run: `Err` if it has failed by them. The remarks are for the end
/// of the run.
pub(crate) fn note(path: &Path, flakes: &[Flake]) -> Result<(Vec<String>, std::result::Result<(), String>)> {
    if flakes.is_empty() {
        return Ok((Vec::new(), Ok(())));
    }
    let known = read(path)?;
    let problem = |error: io::Error| format!("{}: {error}", path.display());
    let mut ledger: File = OpenOptions::new().create(true).append(true).open(path).map_err(problem)?;
    let mut lines = String::new();
    for flake in flakes {
        lines += &serde_json::to_string(flake).map_err(|error| error.to_string())?;
        lines.push('\n');
    }
    // In one piece: other tests may run beside these, such as those of the package for Python.
    ledger.write_all(lines.as_bytes()).map_err(problem)?;
    let mut counts = BTreeMap::<&str, usize>::new();
    for flake in known.iter().chain(flakes) {
        *counts.entry(&flake.test).or_default() += 1;
    }
    let count = |flake: &Flake| counts.get(flake.test.as_str()).copied().unwrap_or_default();
    let remark = |flake: &Flake| {
        let text = flake.text.replace('\n', "\n    ");
        let log =
            flake.log.as_ref().map_or_else(String::new, |log| format!("\n    its log: {}", log.display()));
        format!(
            "FLAKY: {} ({} in the ledger): it failed, and passed twice alone\n    {text}{log}",
            flake.test,
            count(flake)
        )
    };
    let verdict = if flakes.len() > IN_A_RUN {
        Err(format!("{} flaky tests in one run", flakes.len()))
    } else {
        match flakes.iter().find(|flake| count(flake) > IN_THE_LEDGER) {
            Some(flake) => Err(format!("{} is in the ledger {} times", flake.test, count(flake))),
            None => Ok(()),
        }
    };
    Ok((flakes.iter().map(remark).collect(), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flake(test: &str) -> Flake {
        Flake {
            date: "2026-01-31".into(),
            commit: "abc".into(),
            test: test.into(),
            text: without_middle(&format!("seed 7\n{}\nthe end", "x".repeat(9000))),
            log: Some("logs/a.log".into()),
        }
    }

    #[test]
    fn one_is_noted_two_fail_and_so_does_the_third_time() {
        let path = std::env::temp_dir().join(format!("lockwell-flakes-{}.jsonl", std::process::id()));
        drop(fs::remove_file(&path));
        assert_eq!(note(&path, &[]).unwrap(), (Vec::new(), Ok(())));
        let (remarks, verdict) = note(&path, &[flake("a/b c")]).unwrap();
        assert_eq!(verdict, Ok(()));
        for part in ["a/b c (1 in the ledger)", "    seed 7\n", "    the end\n    its log: logs/a.log"] {
            assert!(remarks[0].contains(part), "{part}: {remarks:?}");
        }
        assert_eq!(note(&path, &[flake("other")]).unwrap().1, Ok(()));
        assert_eq!(note(&path, &[flake("a/b c")]).unwrap().1, Ok(()));
        assert!(note(&path, &[flake("a/b c")]).unwrap().1.unwrap_err().contains("3 times"));
        assert!(note(&path, &[flake("x"), flake("y")]).unwrap().1.unwrap_err().contains("2 flaky"));
        assert_eq!(read(&path).unwrap().len(), 6);
        let first = &read(&path).unwrap()[0];
        assert!(first.text.len() < TEXT.0 + TEXT.1 + 20 && first.log.is_none(), "{first:?}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_ledger_of_the_repository_can_be_read() {
        read(&path()).unwrap();
    }
}
