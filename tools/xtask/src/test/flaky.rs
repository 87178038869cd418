//! `cargo xtask flaky`: the ledger has the flaky tests of other languages, too. `python/check` calls it.

use std::path::PathBuf;
use std::process::ExitCode;

use super::flakes::{self, Flake};
use crate::shell::Result;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// What has run the tests: the first word of their names in the ledger, such as `python`.
    program: String,
    /// The file with what they wrote when they failed.
    log: PathBuf,
    /// The tests.
    #[arg(required = true)]
    tests: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Options { program, log, tests } = options;
    let wrote = std::fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let wrote = String::from_utf8_lossy(&wrote);
    let flakes: Vec<_> = tests
        .iter()
        .map(|test| Flake::found(format!("{program} {test}"), &wrote, None))
        .collect::<Result<_>>()?;
    let (remarks, verdict) = flakes::note(&flakes::path(), &flakes)?;
    for remark in remarks {
        println!("{remark}");
    }
    verdict.map(|()| ExitCode::SUCCESS)
}
