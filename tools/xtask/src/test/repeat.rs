//! Runs the tests several times, and stores the results.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use testbed::Release;

use super::series::{Book, Run, Series, Subject};
use crate::shell::{Result, root, text};

/// Runs the tests until there is this number of runs, including those of earlier calls, which are in this
/// folder. `restarts` tells whether those do not count. `once` returns the names of the tests that failed.
pub(crate) fn run(
    folder: &Path,
    times: usize,
    restarts: impl Fn(&Series) -> bool,
    busy: usize,
    args: &[String],
    once: impl Fn() -> Result<Vec<String>>,
) -> Result<ExitCode> {
    let subject = Subject { commit: commit()?, busy, args: args.to_vec() };
    let mut book = Book::load(folder)?;
    let last = book.series(&subject, false);
    let mut restart = !last.runs.is_empty() && restarts(last);
    if restart {
        eprintln!("xtask: the runs of earlier calls do not count");
    }
    loop {
        let series = book.series(&subject, restart);
        restart = false;
        if series.runs.len() >= times {
            print!("{}", series.table());
            return Ok(if series.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        eprintln!("xtask: run {} of {times}, busy loops: {busy}", series.runs.len() + 1);
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let began = Instant::now();
        let failures = once()?;
        let seconds = began.elapsed().as_secs();
        series.runs.push(Run { date, seconds, load: load(), passed: failures.is_empty(), failures });
        // If xtask is stopped now, only the next run is lost.
        book.save(folder)?;
    }
}

/// What is tested: the commit, and a mark of what was changed since.
pub(super) fn commit() -> Result<String> {
    let git = |args: &[&str]| text(Command::new("git").current_dir(root()).args(args));
    let head = git(&["rev-parse", "HEAD"])?;
    // The runs themselves write the ledger.
    let all = ["--", ".", ":(exclude)tests/flakes.jsonl"];
    let mut changes = git(&[&["diff", "HEAD"][..], &all].concat())?;
    let added = git(&[&["ls-files", "--others", "--exclude-standard", "-z"][..], &all].concat())?;
    for file in added.split_terminator('\0') {
        changes += &git(&["hash-object", "--", file])?;
    }
    Ok(state(head.trim(), &changes))
}

/// What else a run depends on: the servers that are there, with their versions, and the variables that choose
/// among them.
pub(super) fn servers() -> String {
    let there = Release::all().iter().filter_map(|release| {
        let version = release.version().ok()?;
        Some(format!("{}={version}", release.name()))
    });
    let chosen = ["LOCKWELL_RELEASES", "LOCKWELL_REQUIRE_SERVERS"]
        .map(|name| format!("{name}={}", std::env::var(name).unwrap_or_default()));
    there.chain(chosen).collect::<Vec<_>>().join(" ")
}

fn state(head: &str, changes: &str) -> String {
    if changes.is_empty() {
        return head.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(changes.as_bytes());
    format!("{head}+{:016x}", hasher.finish())
}

fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_tree_is_another_state() {
        assert_eq!(state("abc", ""), "abc");
        assert_ne!(state("abc", "+x"), "abc");
        assert_ne!(state("abc", "+x"), state("abc", "+y"));
        assert_eq!(state("abc", "+x"), state("abc", "+x"));
    }
}
