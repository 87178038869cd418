//! Tests that fail, and pass when they are repeated alone.
//!
//! A flaky test is a bug in the code or in the test. One of them does not stop the work of others: it is named at
//! the end of the run. A run with two of them fails.

use super::run::{Failed, Outcome};
use crate::shell::{Result, line};

/// How often a test that failed is repeated, alone.
const AGAIN: usize = 2;
/// With more failed tests than this none is repeated: it is no flake.
const MOST_AGAIN: usize = 10;
/// How many flaky tests a run may have.
const FLAKY: usize = 1;

/// Repeats what has failed, and prints the closing lines. Whether the run is a success.
pub(super) fn finish(outcomes: Vec<Outcome>, remarks: Vec<String>) -> Result<bool> {
    let (mut lines, mut failed, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        lines.push(outcome.summary);
        failed.extend(outcome.failed);
        problems.extend(outcome.problem);
    }
    lines.extend(remarks);
    let may_repeat = failed.len() <= MOST_AGAIN;
    let mut flaky = 0;
    for Failed { name, mut alone } in failed {
        let mut passes = may_repeat;
        for time in 1..=AGAIN {
            if passes {
                println!("alone, {time} of {AGAIN}: {name}");
                let status = alone.status().map_err(|error| format!("{}: {error}", line(&alone)))?;
                passes = status.success();
            }
        }
        if passes {
            flaky += 1;
            lines.push(format!("FLAKY: {name}: it failed, and passed {AGAIN} times alone"));
        } else {
            problems.push(name);
        }
    }
    if flaky > FLAKY {
        problems.push(format!("{flaky} flaky tests in one run"));
    }
    lines.extend(problems.iter().map(|problem| format!("failed: {problem}")));
    println!("\n{}", lines.join("\n"));
    Ok(problems.is_empty())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Tests that failed, and pass alone if they are `true`.
    fn failed(programs: &[&str]) -> Vec<Outcome> {
        let failed = programs
            .iter()
            .map(|program| Failed { name: (*program).to_owned(), alone: Command::new(program) });
        vec![Outcome { failed: failed.collect(), ..Outcome::default() }]
    }

    #[test]
    fn one_flaky_test_is_told_and_two_fail() {
        for (programs, is_well) in [
            (&[][..], true),
            (&["true"], true),
            (&["true", "true"], false),
            (&["false"], false),
            (&["true", "false"], false),
        ] {
            assert_eq!(finish(failed(programs), Vec::new()).unwrap(), is_well, "{programs:?}");
        }
        assert!(!finish(failed(&["true"; MOST_AGAIN + 1]), Vec::new()).unwrap());
    }

    #[test]
    fn a_test_that_fails_once_alone_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        let mut alone = Command::new("mkdir");
        alone.arg(folder.path().join("once"));
        let outcome = Outcome { failed: vec![Failed { name: "x".to_owned(), alone }], ..Outcome::default() };
        assert!(!finish(vec![outcome], Vec::new()).unwrap(), "it passes the first time only");
    }

    #[test]
    fn a_program_that_fails_as_a_whole_fails_the_run() {
        let outcome = Outcome { problem: Some("it hung".to_owned()), ..Outcome::default() };
        assert!(!finish(vec![outcome], Vec::new()).unwrap());
    }
}
