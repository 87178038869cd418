//! The last lines of a run: what nobody should miss in a long output.

use std::fs;
use std::path::Path;

use super::events::{Ended, Test};
use super::running::ProgramOutcome;
use crate::shell::Result;

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;

/// How many of the last lines of a failed test are repeated.
const LINES: usize = 25;

/// The tests that took the longest.
pub(crate) fn slowest(outcomes: &[ProgramOutcome]) -> Vec<String> {
    let tests = outcomes.iter().flat_map(|outcome| outcome.tests.iter().map(move |test| (outcome, test)));
    let mut tests: Vec<(&ProgramOutcome, &Test)> =
        tests.filter(|(_, test)| test.ended != Ended::Ignored).collect();
    tests.sort_by_key(|(_, test)| std::cmp::Reverse(test.took));
    let line = |(outcome, test): &(&ProgramOutcome, &Test)| {
        format!("{:7.1} s  {} {}", test.took.as_secs_f64(), outcome.title, test.name)
    };
    tests.iter().take(SLOWEST).map(line).collect()
}

/// A failed test or program, with the end of what it wrote.
pub(crate) fn failed(name: &str, text: &str) -> String {
    let said = text.split("stack backtrace:").next().unwrap_or_default();
    let lines: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().fold(format!("failed: {name}"), |text, line| text + "\n    " + line)
}

/// Prints them, and writes them to a file of this folder for who runs more than the tests.
pub(crate) fn tell(folder: &Path, lines: &[String]) -> Result<()> {
    let text = lines.join("\n") + "\n";
    print!("{text}");
    let file = folder.join("closing.txt");
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// The form in which many programs understand how tests went.
pub(crate) fn counts(passed: usize, failed: usize, skipped: usize) -> String {
    format!("tests: {passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut() {
        let text = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join("\n\n");
        let failed = failed("x", &text);
        assert!(failed.starts_with("failed: x\n    75\n") && failed.ends_with("\n    99"), "{failed}");
        assert_eq!(super::failed("x", "why\nstack backtrace:\n 0: main"), "failed: x\n    why");
    }
}
