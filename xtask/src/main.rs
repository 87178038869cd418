//! The commands of this repository: `cargo xtask compare` and `cargo xtask test`, servers to play with, and checks.

mod busy;
mod compare;
mod deny;
mod deps;
#[cfg(test)]
mod documented;
mod figures;
mod fuzz;
mod install;
mod msrv;
mod package;
mod packages;
mod peers;
mod play;
mod ran;
mod repeat;
mod semver;
mod series;
mod servers;
mod shell;
mod sizes;
mod suite;
mod table;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(about = "The commands of this repository.")]
enum Command {
    /// Compare the backends: build compare-bench in release and run it. `cargo xtask compare -- --help` lists its
    /// options, which can be given here.
    ///
    /// Servers that are missing are installed through apt where that is possible.
    Compare(HandedOn),
    /// Run all tests. Further arguments, behind those listed here, go to `cargo test`.
    ///
    /// Newer releases of servers are fetched, beside what is installed; what cannot be had is named at the end.
    ///
    /// What is missing, servers and what runs the lock clients of others, is installed through apt where that is
    /// possible. Tests of what is still missing are ignored, or fail with `LOCKWELL_REQUIRE_SERVERS=1`.
    Test(suite::Options),
    /// Check licences and sources of all dependencies by deny.toml, and more with cargo-deny and cargo-audit where they are installed.
    Deny,
    /// Count the dependencies of each feature, for the documentation, and check that no backend brings those of another.
    Deps(deps::Options),
    /// Build the command for release, with manual pages, completions, a Debian package and a static program as far as the tools for
    /// it are there, and try each in an empty folder.
    Package,
    /// Give every parser of what comes from outside arbitrary input, each target of fuzz/ for a minute. It takes a nightly compiler and
    /// cargo-fuzz.
    Fuzz(fuzz::Options),
    /// Check that no dependency needs a newer Rust than the workspace promises.
    Msrv(msrv::Options),
    /// Say whether there are newer releases of the lock libraries that the comparison measures in pinned versions.
    Peers,
    /// Fill the figures of the documentation in from the runs in `compare-bench/runs`.
    Figures(figures::Options),
    /// Start servers to play with; or the releases of servers that the tests know: list them, fetch newer ones, write the table of the documentation.
    Servers(servers::Options),
    /// Compare the API of each published package with the last release or a commit, with cargo-semver-checks.
    Semver(semver::Options),
    /// Check that no source file has grown too long.
    Sizes,
    /// Be busy until the standard input ends.
    #[command(hide = true, name = busy::COMMAND)]
    BusyLoop,
}

#[derive(Debug, clap::Args)]
struct HandedOn {
    /// `--no-install` forbids to install anything; the rest is handed on.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Compare(HandedOn { args }) => compare::run(args),
        Command::Test(options) => suite::run(options),
        Command::Deny => deny::run(),
        Command::Deps(options) => deps::run(&options),
        Command::Package => package::run(),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Msrv(options) => msrv::run(&options),
        Command::Peers => peers::run(),
        Command::Figures(options) => figures::run(&options),
        Command::Servers(options) => servers::run(options),
        Command::Semver(options) => semver::run(&options),
        Command::Sizes => sizes::run(),
        Command::BusyLoop => busy::run(),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("xtask: {problem}");
        ExitCode::FAILURE
    })
}
