//! `cargo xtask test`: all tests.

use std::process::ExitCode;

use crate::install::{allowed, ensure};
use crate::packages::{SERVERS, TOOLS};
use crate::shell::{Result, cargo, foreground};

pub(crate) fn run(mut args: Vec<String>) -> Result<ExitCode> {
    let allowed = allowed(&mut args);
    ensure(SERVERS.iter().chain(&TOOLS), allowed);
    foreground(cargo().args(command(&args)).args(&args))
}

/// Not nextest: it runs each test in a process of its own, and each process would start its own servers. It runs no
/// doc tests either. Whoever waits for all of it wants to hear of all that fails.
fn command(args: &[String]) -> Vec<&'static str> {
    let ours = args.iter().take_while(|arg| *arg != "--");
    let chosen = |arg: &String| arg.starts_with("-p") || arg == "--package" || arg.starts_with("--package=");
    // Beside --workspace, cargo would take no notice of the chosen package.
    let scope = if ours.into_iter().any(chosen) { &[][..] } else { &["--workspace"][..] };
    [&["test"][..], scope, &["--all-features", "--no-fail-fast"][..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        command(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).join(" ")
    }

    #[test]
    fn everything_is_tested_unless_a_package_is_chosen() {
        assert_eq!(shown(""), "test --workspace --all-features --no-fail-fast");
        assert_eq!(shown("--test conformance -- -p"), "test --workspace --all-features --no-fail-fast");
        assert_eq!(shown("-p lockcore"), "test --all-features --no-fail-fast");
        assert_eq!(shown("--package=lockcore"), "test --all-features --no-fail-fast");
    }
}
