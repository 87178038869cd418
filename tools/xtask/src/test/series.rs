//! What is remembered of runs that are repeated, and the table of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::shell::Result;

/// What has to be the same for runs to belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) commit: String,
    pub(crate) busy: usize,
    pub(crate) args: Vec<String>,
}

/// One run of the tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// When it began.
    pub(crate) date: String,
    pub(crate) seconds: u64,
    /// The load of the machine over the run's last minute, where it is known.
    pub(crate) load: Option<f64>,
    pub(crate) passed: bool,
    /// The names of the tests that failed.
    pub(crate) failures: Vec<String>,
}

/// Runs that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) subject: Subject,
    pub(crate) runs: Vec<Run>,
}

/// All series of this work tree, the newest last.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Book {
    series: Vec<Series>,
}

impl Book {
    fn path(folder: &Path) -> PathBuf {
        folder.join("repeat.json")
    }

    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let path = Self::path(folder);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Replaces the file in one step: after an interruption it is the old one or the new one.
    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let path = Self::path(folder);
        let write = || {
            let draft = path.with_extension("draft");
            fs::create_dir_all(folder)?;
            fs::write(&draft, serde_json::to_string_pretty(self)?)?;
            fs::rename(draft, &path)
        };
        write().map_err(|error: io::Error| format!("{}: {error}", path.display()))
    }

    /// The series to go on with: the newest of this subject, or a new one.
    pub(crate) fn series(&mut self, subject: &Subject, restart: bool) -> &mut Series {
        let last = self.series.iter().rposition(|series| series.subject == *subject);
        let index = last.filter(|_| !restart).unwrap_or_else(|| {
            self.series.push(Series { subject: subject.clone(), runs: Vec::new() });
            self.series.len() - 1
        });
        &mut self.series[index]
    }
}

impl Series {
    pub(crate) fn has_failed(&self) -> bool {
        self.runs.iter().any(|run| !run.passed)
    }

    /// Whether more runs would tell nothing new: there are as many as are wanted, or one has failed.
    pub(crate) fn is_over(&self, times: usize) -> bool {
        self.runs.len() >= times || self.has_failed()
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let passes = self.runs.iter().filter(|run| run.passed).count();
        let seconds: u64 = self.runs.iter().map(|run| run.seconds).sum();
        let loads: Vec<f64> = self.runs.iter().filter_map(|run| run.load).collect();
        let load = loads.iter().copied().fold(0.0, f64::max);
        let mut table = format!(
            "  runs passes failed  seconds  load up to\n{:6} {passes:6} {:6} {seconds:8} {load:11.1}\n",
            self.runs.len(),
            self.runs.len() - passes
        );
        let mut counts = BTreeMap::<&str, usize>::new();
        for name in self.runs.iter().flat_map(|run| &run.failures) {
            *counts.entry(name).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if !counts.is_empty() {
            table.push_str(" times failed\n");
        }
        for (name, count) in counts {
            // Writing to a string does not fail.
            writeln!(table, "{count:6} {name}").expect("a string");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(commit: &str, busy: usize, args: &[&str]) -> Subject {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Subject { commit: commit.to_owned(), busy, args }
    }

    fn run(failures: &[&str]) -> Run {
        Run {
            date: "2026-01-31T12:00:00Z".to_owned(),
            seconds: 60,
            load: Some(2.25),
            passed: failures.is_empty(),
            failures: failures.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn runs_go_on_where_the_same_ones_stopped() {
        let mut book = Book::default();
        let one = subject("abc", 2, &["-p", "x"]);
        book.series(&one, false).runs.push(run(&[]));
        assert_eq!(book.series(&one, false).runs.len(), 1);
        for other in
            [subject("abd", 2, &["-p", "x"]), subject("abc", 3, &["-p", "x"]), subject("abc", 2, &[])]
        {
            assert_eq!(book.series(&other, false).runs.len(), 0, "{other:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Book::load(folder.path()).unwrap(), Book::default());
        book.save(folder.path()).unwrap();
        let mut book = Book::load(folder.path()).unwrap();
        assert_eq!(book.series(&one, false).runs, [run(&[])]);
        assert_eq!(book.series(&one, true).runs.len(), 0, "begun anew");
        book.series(&one, false).runs.extend([run(&[]), run(&[])]);
        assert_eq!(book.series(&one, false).runs.len(), 2, "the newest counts");
    }

    #[test]
    fn a_series_is_over_with_its_last_run_or_with_a_failure() {
        for (runs, is_over) in [
            (vec![], false),
            (vec![run(&[])], false),
            (vec![run(&["a::b"])], true),
            (vec![run(&[]), run(&[])], true),
        ] {
            assert_eq!(Series { subject: subject("abc", 4, &[]), runs }.is_over(2), is_over);
        }
    }

    #[test]
    fn the_table_counts_failures_by_test() {
        let runs = vec![run(&[]), run(&["a::b"]), run(&["z", "a::b"])];
        let series = Series { subject: subject("abc", 0, &[]), runs };
        assert!(series.has_failed());
        let expected = [
            "  runs passes failed  seconds  load up to",
            "     3      1      2      180         2.2",
            " times failed",
            "     2 a::b",
            "     1 z",
            "",
        ];
        assert_eq!(series.table().lines().chain([""]).collect::<Vec<_>>(), expected);
        let series = Series { runs: vec![run(&[])], ..series };
        assert!(!series.has_failed());
        assert_eq!(series.table().lines().count(), 2);
    }
}
