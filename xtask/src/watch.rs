//! Runs tests, passes their output on, and finds the failed ones in it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};

use crate::shell::{Result, line};

/// How many of the last lines of a failed test are repeated.
const LINES: usize = 25;

/// Runs a command, passes its output on, and finds the failed tests in it.
pub(crate) fn watched(command: &mut Command, shown: &mut impl Write) -> Result<(ExitStatus, Failures)> {
    let called = line(command);
    eprintln!("xtask: {called}");
    let problem = |error| format!("{called}: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(problem)?;
    let mut failures = Failures::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(problem)?;
            let line = String::from_utf8_lossy(&line);
            writeln!(shown, "{line}").map_err(problem)?;
            failures.read(&line);
        }
    }
    Ok((child.wait().map_err(problem)?, failures))
}

/// The failed tests, and the last lines that each of them wrote.
///
/// The output has a line `test NAME ... FAILED` for each of them. After all tests of a program follows what each failed
/// test wrote, below a line `---- NAME stdout ----`, or `---- NAME ----` (libtest-mimic).
#[derive(Debug, Default)]
pub(crate) struct Failures {
    tests: Vec<(String, VecDeque<String>)>,
    /// Whose output the next lines are.
    writing: Option<usize>,
}

impl Failures {
    fn read(&mut self, line: &str) {
        let failed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix("... FAILED"));
        let head = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----"));
        let head = head.map(|name| name.strip_suffix(" stdout").unwrap_or(name));
        // Programs can have tests of the same name; the last one is meant.
        let known = head.and_then(|name| self.tests.iter().rposition(|(test, _)| test == name));
        if let Some(name) = failed {
            self.tests.push((name.trim().to_owned(), VecDeque::new()));
            self.writing = None;
        } else if known.is_some() {
            self.writing = known;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.writing = None;
        } else if let Some((_, lines)) = self.writing.and_then(|number| self.tests.get_mut(number)) {
            lines.push_back(line.to_owned());
            if lines.len() > LINES {
                lines.pop_front();
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tests.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What failed, for the end of a long output.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        self.tests.iter().map(|(name, lines)| {
            let lines = lines.iter().filter(|line| !line.is_empty());
            lines.fold(format!("failed: {name}"), |text, line| text + "\n    " + line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(output: &str) -> Failures {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        failures
    }

    #[test]
    fn failed_tests_are_found_in_the_output() {
        let failures = failures(
            "
running 3 tests
test one ... ok
test a::two ... FAILED
test src/lib.rs - three (line 3) ... FAILED
test mimic                 ... FAILED
failures:

---- a::two stdout ----
    not a name
thread 'a::two' panicked
---- nobody stdout ----


failures:
    a::two
    src/lib.rs - three (line 3)

test result: FAILED. 1 passed; 2 failed
    not a name either
---- mimic ----
a message
running 0 tests",
        );
        assert_eq!(failures.names(), ["a::two", "src/lib.rs - three (line 3)", "mimic"]);
        let remarks: Vec<_> = failures.remarks().collect();
        let expected =
            "failed: a::two\n        not a name\n    thread 'a::two' panicked\n    ---- nobody stdout ----";
        assert_eq!(remarks[0], expected);
        assert_eq!(remarks[1], "failed: src/lib.rs - three (line 3)");
        assert!(remarks[2].starts_with("failed: mimic\n    a message"), "{remarks:?}");
    }

    #[test]
    fn a_long_output_is_cut() {
        let lines = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
        let failures =
            failures(&format!("test x ... FAILED\n---- x stdout ----\n{lines}\nfailures:\n    x\n"));
        let remark = failures.remarks().next().unwrap();
        assert!(remark.starts_with("failed: x\n    75\n") && remark.ends_with("\n    99"), "{remark}");
    }
}
