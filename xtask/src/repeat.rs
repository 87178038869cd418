//! Runs the tests several times, and stores the results.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Write, stdout};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use crate::series::{Book, Run, Subject};
use crate::shell::{Result, line, root, text};
use crate::watch::watched;

/// Runs the tests until there is this number of runs, including those of earlier calls.
pub(crate) fn run(
    times: usize,
    restart: bool,
    busy: usize,
    args: &[String],
    tests: impl Fn() -> Command,
) -> Result<ExitCode> {
    let subject = Subject { commit: commit()?, busy, args: args.to_vec() };
    let mut book = Book::load()?;
    let mut restart = restart;
    loop {
        let series = book.series(&subject, restart);
        restart = false;
        if series.runs.len() >= times {
            print!("{}", series.table());
            return Ok(if series.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        eprintln!("xtask: run {} of {times}, busy loops: {busy}", series.runs.len() + 1);
        series.runs.push(once(&mut tests(), &mut stdout())?);
        // If xtask is stopped now, only the next run is lost.
        book.save()?;
    }
}

fn once(tests: &mut Command, shown: &mut impl Write) -> Result<Run> {
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let began = Instant::now();
    let (status, failures) = watched(tests, shown)?;
    let mut failures = failures.names();
    if status.code().is_none() {
        return Err(format!("{}: {status}; this run does not count", line(tests)));
    }
    // What a test wrote may have looked like a list.
    if status.success() {
        failures.clear();
    } else if failures.is_empty() {
        failures.push(format!("(no test; cargo: {status})"));
    }
    let seconds = began.elapsed().as_secs();
    Ok(Run { date, seconds, load: load(), passed: status.success(), failures })
}

/// What is tested: the commit, and a mark of what was changed since.
fn commit() -> Result<String> {
    let git = |args: &[&str]| text(Command::new("git").current_dir(root()).args(args));
    let head = git(&["rev-parse", "HEAD"])?;
    let mut changes = git(&["diff", "HEAD"])?;
    let added = git(&["ls-files", "--others", "--exclude-standard", "-z"])?;
    for file in added.split_terminator('\0') {
        changes += &git(&["hash-object", "--", file])?;
    }
    Ok(state(head.trim(), &changes))
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

    #[test]
    fn a_run_tells_how_it_ended() {
        // Not to the standard output: this test may itself run under such a watch.
        let sh = |script: &str| once(Command::new("sh").args(["-c", script]), &mut Vec::new());
        let run = sh("echo 'test x ... FAILED'; exit 101").unwrap();
        assert_eq!((run.passed, run.failures), (false, vec!["x".to_owned()]));
        assert!(sh("exit 101").unwrap().failures[0].contains("101"));
        assert!(sh("true").unwrap().passed);
        assert!(sh("kill -KILL $$").unwrap_err().contains("does not count"));
    }
}
