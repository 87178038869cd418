//! What a test does if this machine lacks something. It cannot tell the harness, which counts it as passed,
//! so it tells `cargo xtask test`: in the file that `LOCKWELL_NOT_RUN` names.

use std::{env, fs, io::Write, thread};

use crate::Error;

/// True if a missing server must fail a test instead of skipping it: `LOCKWELL_REQUIRE_SERVERS=1` (CI).
pub fn servers_required() -> bool {
    env::var_os("LOCKWELL_REQUIRE_SERVERS").is_some_and(|value| value == "1")
}

/// Whether a server can be started, by what its `installed` answered. If not, this says why, and the test is
/// to be skipped.
///
/// # Panics
/// If it cannot and [servers are required](servers_required).
pub fn is_installed(answer: Result<(), Error>) -> bool {
    let Err(error) = answer else { return true };
    lacks(&error.to_string());
    false
}

/// What was started, or nothing if its program is not on this machine, or is too old: then this says so, and
/// the test is to be skipped.
///
/// # Panics
/// If it does not start, or is not there and [servers are required](servers_required).
pub fn if_installed<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Err(Error::TooOld(why)) => {
            cannot_run("", &why);
            None
        }
        Err(error) if error.is_not_installed() => {
            is_installed(Err(error));
            None
        }
        answer => Some(answer.expect("it starts")),
    }
}

/// The same for a release that is fetched and not installed. Nobody has to fetch it.
///
/// # Panics
/// If it is there, and does not start.
pub fn if_fetched<T>(answer: Result<T, Error>) -> Option<T> {
    match answer {
        Err(error) if error.is_not_installed() => {
            not_run("", &error.to_string());
            None
        }
        answer => Some(answer.expect("it starts")),
    }
}

/// Says that a test is skipped, since this machine lacks what it takes.
///
/// # Panics
/// If [servers are required](servers_required).
pub fn lacks(why: &str) {
    assert!(!servers_required(), "{why}");
    not_run("", why);
}

/// Says that this test is not run, or a part of it, and why. A run counts such a test as skipped. For what
/// `cargo xtask test --install` can get; the rest [cannot be run](cannot_run). No part is the whole test.
pub fn not_run(part: &str, why: &str) {
    note("missing", part, why);
}

/// The same for what nobody can change by installing something, such as the rights of the user.
pub fn cannot_run(part: &str, why: &str) {
    note("beyond", part, why);
}

fn note(kind: &str, part: &str, why: &str) {
    let test = name();
    eprintln!("not run: {test} {part} ({why})");
    let Some(path) = env::var_os("LOCKWELL_NOT_RUN") else { return };
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    let line = not_run_line([kind, &test, part, why]);
    // Written in one piece, since several tests may do so.
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("and that cannot be noted: {error}");
    }
}

/// The name of the running test. In a process of its own a test may run in the main thread, and nextest says its
/// name.
fn name() -> String {
    let of_thread = || thread::current().name().unwrap_or_default().to_owned();
    env::var("NEXTEST_TEST_NAME").unwrap_or_else(|_| of_thread())
}

/// A line of the file of what was [not run](not_run): its kind, the test, the part, and the reason.
fn not_run_line(fields: [&str; 4]) -> String {
    let first = |field: &str| field.trim().lines().next().unwrap_or_default().replace('\t', " ");
    fields.map(first).join("\t") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_four_fields() {
        let why = "unshare:\tno\nmore of it";
        assert_eq!(not_run_line(["missing", "a::b", "", why]), "missing\ta::b\t\tunshare: no\n");
    }

    /// Of these names the lines are made.
    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(name(), "lacking::tests::a_test_knows_its_name");
    }

    #[test]
    fn what_is_not_there_is_nothing_and_what_is_there_is_taken() {
        assert_eq!(if_fetched(Ok(1)), Some(1));
        assert_eq!(if_installed(Ok(1)), Some(1));
        assert!(is_installed(Ok(())));
    }
}
