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

/// The failed tests. libtest lists them below `failures:`, twice: first with what each of them wrote, then their names,
/// further in.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) names: Vec<String>,
    /// The name of each test, and the last lines that it wrote.
    written: Vec<(String, VecDeque<String>)>,
    part: Part,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Outside,
    /// Below `failures:`.
    List,
    /// Below the head of what a test wrote.
    Written,
}

impl Failures {
    fn read(&mut self, line: &str) {
        let head = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if line.trim_end() == "failures:" {
            self.part = Part::List;
        } else if let Some(name) = head.filter(|_| self.part != Part::Outside) {
            self.part = Part::Written;
            self.written.push((name.to_owned(), VecDeque::new()));
        } else if self.part == Part::Written {
            if let Some((_, lines)) = self.written.last_mut() {
                lines.push_back(line.to_owned());
                if lines.len() > LINES {
                    lines.pop_front();
                }
            }
        } else if let Some(name) = line.strip_prefix("    ").filter(|_| self.part == Part::List) {
            self.names.push(name.trim_end().to_owned());
        } else if !line.is_empty() {
            self.part = Part::Outside;
        }
    }

    /// What failed, for the end of a long output.
    pub(crate) fn remarks(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| {
            let written = self.written.iter().find(|(of, _)| of == name);
            let lines = written.into_iter().flat_map(|(_, lines)| lines).filter(|line| !line.is_empty());
            lines.fold(format!("failed: {name}"), |text, line| text + "\n    " + line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_found_in_the_output() {
        let output = "
running 3 tests
test one ... ok
test a::two ... FAILED
failures:

---- a::two stdout ----
    not a name
thread 'a::two' panicked


failures:
    a::two
    src/lib.rs - three (line 3)

test result: FAILED. 1 passed; 2 failed
    not a name either
---- nor this stdout ----
running 0 tests";
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        assert_eq!(failures.names, ["a::two", "src/lib.rs - three (line 3)"]);
        let remarks: Vec<_> = failures.remarks().collect();
        assert_eq!(remarks[0], "failed: a::two\n        not a name\n    thread 'a::two' panicked");
        assert_eq!(remarks[1], "failed: src/lib.rs - three (line 3)");
    }

    #[test]
    fn a_long_output_is_cut() {
        let mut failures = Failures::default();
        let lines = (0..100).map(|number| number.to_string());
        let output = ["failures:".to_owned(), "---- x stdout ----".to_owned()].into_iter().chain(lines);
        output.chain(["failures:".to_owned(), "    x".to_owned()]).for_each(|line| failures.read(&line));
        let remark = failures.remarks().next().unwrap();
        assert!(remark.starts_with("failed: x\n    75\n") && remark.ends_with("\n    99"), "{remark}");
    }
}
