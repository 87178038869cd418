use std::num::NonZeroU32;
use std::time::Duration;

use clap::CommandFactory as _;
use lockwell::{LockName, Mode};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn run(line: &str) -> RunArgs {
    match parse(line).map(|cli| cli.command) {
        Ok(Command::Run(args)) => args,
        Ok(_) => panic!("{line}"),
        Err(error) => panic!("{line}: {error}"),
    }
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn modes() {
    let mode = |line| run(line).mode();
    assert_eq!(mode("lockwell run a -- true"), Mode::Exclusive);
    assert_eq!(mode("lockwell run --read a -- true"), Mode::Shared);
    let limit = NonZeroU32::new(3).unwrap();
    assert_eq!(mode("lockwell run --permits 3 a -- true"), Mode::Permit { limit });
}

#[test]
fn a_wait_without_a_unit_is_in_seconds() {
    assert_eq!(run("lockwell run --wait 5 a -- true").wait, Some(Duration::from_secs(5)));
}

#[test]
fn several_names() {
    let names = run("lockwell run --also b --also c a -- true").names();
    assert_eq!(names.iter().map(LockName::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn what_is_refused() {
    for line in [
        "lockwell run a true",
        "lockwell run a --",
        "lockwell run --read --permits 3 a -- true",
        "lockwell run --read --also b a -- true",
        "lockwell run --permits 0 a -- true",
        "lockwell run --wait 5s --no-wait a -- true",
        "lockwell run --wait 5x a -- true",
        "lockwell run -q -v a -- true",
        "lockwell run --exit-code-held 256 a -- true",
        "lockwell run --url x --url-file y a -- true",
        "lockwell acquire a",
        "lockwell release",
        "lockwell release --yes a",
        "lockwell wait",
        "lockwell completions tcl",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let name = "x".repeat(LockName::MAX_BYTES + 1);
    let error = parse(&format!("lockwell status {name}")).err().expect("refused").to_string();
    assert!(error.contains("at most 512 bytes"), "{error}");
}
