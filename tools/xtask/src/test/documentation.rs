//! The tests in the documentation, which cargo builds and runs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use super::programs::patient;
use super::watched::{Ends, Watched};
use crate::shell::{Result, cargo};

/// If nothing is heard for this time, a test hangs. Cargo compiles them, beside other tests and with less
/// priority.
const LIMIT: Duration = Duration::from_hours(1);

/// How they went.
#[derive(Debug, Default)]
pub(crate) struct Documentation {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    pub(crate) ignored: usize,
    pub(crate) took: Duration,
    /// All that was written, if cargo failed.
    pub(crate) problem: Option<String>,
}

/// Runs them, for the packages that these arguments of `cargo test` name.
pub(crate) fn run(args: &[String], filters: &[String]) -> Result<Documentation> {
    let mut testing = patient(cargo().get_program());
    testing.arg("test").args(args).args(["--doc", "--no-fail-fast", "--"]).args(filters);
    let problem = |error: std::io::Error| format!("the tests of the documentation: {error}");
    let began = Instant::now();
    testing.stdin(Stdio::null()).stderr(Stdio::inherit());
    // They start no servers, and the test that hangs is a grandchild of cargo.
    let mut watched = Watched::start(&mut testing, LIMIT, Ends::WithDescendants).map_err(problem)?;
    let (mut done, mut all) = (Documentation::default(), Vec::new());
    while let Some(line) = watched.line().map_err(problem)? {
        watched.note_progress();
        done.read(&line);
        all.push(line);
    }
    let (status, timed_out) = watched.end().map_err(problem)?;
    if timed_out {
        all.push(format!("nothing more was heard for {LIMIT:?}"));
    }
    done.problem = (!status.success()).then(|| all.join("\n"));
    done.took = began.elapsed();
    Ok(done)
}

impl Documentation {
    /// The form of these lines is that of rustdoc: `test FILE - ITEM (line 3) ... FAILED`, and `test result:
    /// ok. 3 passed; ...`.
    fn read(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failed.extend(failed.map(|name| name.trim().to_owned()));
        if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) {
            let count = |what: &str| {
                let part = counts.split("; ").find_map(|part| part.strip_suffix(what));
                part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or(0)
            };
            self.passed += count(" passed");
            self.ignored += count(" ignored");
        }
    }

    pub(crate) fn line(&self) -> String {
        let (seconds, failed) = (self.took.as_secs_f64(), self.failed.len());
        let Self { passed, ignored, .. } = self;
        format!(
            "{seconds:7.1} s  {:26} {passed:5} passed, {failed} failed, {ignored} ignored",
            "documentation"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_rustdoc_is_read() {
        let mut done = Documentation::default();
        for line in [
            "running 3 tests",
            "test src/lib.rs - three (line 3) ... FAILED",
            "test src/lib.rs - four (line 9) - compile ... ok",
            "test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ] {
            done.read(line);
        }
        assert_eq!((done.passed, done.ignored), (7, 4));
        assert_eq!(done.failed, ["src/lib.rs - three (line 3)"]);
    }
}
