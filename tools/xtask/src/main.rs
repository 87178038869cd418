//! The commands of this repository: `cargo xtask compare` and `cargo xtask test`, servers to experiment with,
//! and checks.

mod busy;
mod circles;
mod compare;
mod deny;
mod deps;
#[cfg(test)]
mod documented;
mod fuzz;
mod handed_on;
mod install;
mod msrv;
mod not_run;
mod package;
mod packages;
mod peers;
mod play;
#[cfg(test)]
mod published;
mod ran;
mod semver;
mod servers;
mod shell;
mod sizes;
mod table;
mod test;

use std::process::ExitCode;

use clap::Parser;

use crate::handed_on::HandedOn;

#[derive(Debug, Parser)]
#[command(about = "Tests, checks and tools for those who work on lockwell.")]
enum Command {
    /// Measure the backends: build compare-bench for release and run it. `cargo xtask compare -- --help`
    /// lists its options, which can be given here.
    ///
    /// With `--install`, or a yes at the terminal, missing servers are installed with apt. Otherwise the
    /// command for that is printed.
    Compare(HandedOn),
    /// Run all tests. Arguments after the options listed here go to `cargo test`.
    ///
    /// The tests use servers that are installed, and other releases, which are downloaded. Those that are not
    /// there are listed at the end.
    ///
    /// With `--install`, or a yes at the terminal, missing servers and the tools for other lock clients are
    /// installed with apt, and releases are downloaded. Otherwise the commands for that are printed.
    /// Tests that miss a server count as skipped, and the last lines name them. With the environment variable
    /// `LOCKWELL_REQUIRE_SERVERS=1` they fail.
    Test(test::Options),
    /// Note tests of another language that failed, and passed when they ran alone, in the ledger of flaky
    /// tests. Fails as a run of the tests does: for two of them, and for one that is there the third time.
    Flaky(test::flaky::Options),
    /// Check licences and sources of all dependencies by deny.toml. If cargo-deny and cargo-audit are
    /// installed, run them as well.
    Deny,
    /// Count the dependencies of each feature and write them into the documentation. Fails if the feature of
    /// one backend brings dependencies of another.
    Deps(deps::Options),
    /// Build the command `lockwell` for release, with manual pages and completions; a Debian package and a
    /// static program if the tools for them are installed. Each is tried in an empty folder.
    Package(package::Options),
    /// Give arbitrary input to every parser of foreign data: each target of fuzz/ for a minute. It needs a
    /// nightly compiler and cargo-fuzz.
    Fuzz(fuzz::Options),
    /// Check that no feature needs a newer Rust than the `rust-version` of the packages that it compiles.
    Msrv(msrv::Options),
    /// List newer releases of the other lock libraries that the comparison measures in fixed versions.
    Peers,
    /// Start servers to experiment with. Without arguments: list the servers that the tests use.
    Servers(servers::Options),
    /// Compare the API of each published package with the last release or a commit, with cargo-semver-checks.
    Semver(semver::Options),
    /// Check that no files of a package import each other in a circle.
    Circles,
    /// List source files that are longer than 400 lines, and comments that are wider than 110 columns.
    Sizes,
    /// Be busy until the standard input ends.
    #[command(hide = true, name = busy::COMMAND)]
    BusyLoop,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Compare(HandedOn { args }) => compare::run(args),
        Command::Test(options) => test::run(options),
        Command::Flaky(options) => test::flaky::run(&options),
        Command::Deny => deny::run(),
        Command::Deps(options) => deps::run(&options),
        Command::Package(options) => package::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Msrv(options) => msrv::run(&options),
        Command::Peers => peers::run(),
        Command::Servers(options) => servers::run(options),
        Command::Semver(options) => semver::run(&options),
        Command::Circles => circles::run(),
        Command::Sizes => sizes::run(),
        Command::BusyLoop => busy::run(),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("xtask: {problem}");
        ExitCode::FAILURE
    })
}
