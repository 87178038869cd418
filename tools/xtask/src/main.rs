//! The commands of this repository: `cargo xtask compare` and `cargo xtask test`, servers to experiment with,
//! and checks.

#[cfg(test)]
mod circles;
mod compare;
#[cfg(test)]
mod documented;
#[cfg(test)]
mod features;
#[cfg(test)]
mod fields;
mod install;
mod package;
mod packages;
mod play;
#[cfg(test)]
mod published;
mod servers;
mod shell;
#[cfg(test)]
mod statics;
mod test;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(about = "Tests, checks and tools for those who work on lockwell.")]
enum Command {
    /// Measure the backends: build compare-bench for release and run it. `cargo xtask compare -- --help`
    /// lists its options, which can be given here.
    ///
    /// With `--install` missing servers are installed with apt and downloaded before.
    Compare {
        /// `--install`: install what is missing. All other arguments are passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<String>,
    },
    /// Run all tests, or what the arguments after the options listed here choose.
    ///
    /// The tests use servers that are installed, and other releases, which are downloaded. Those that are not
    /// there are listed at the end.
    ///
    /// With `--install`, or a yes at the terminal, missing servers and the tools for other lock clients are
    /// installed with apt, and releases are downloaded. Otherwise the commands for that are printed.
    /// Tests that miss a server count as skipped, and the last lines name them. With the environment variable
    /// `LOCKWELL_REQUIRE_SERVERS=1` they fail.
    Test(test::Options),
    /// Install what the tests need: packages with apt, releases of servers, tools for cargo.
    Install,
    /// Build the command `lockwell` for release, with manual pages and completions; a Debian package and a
    /// static program if the tools for them are installed. Each is tried in an empty folder.
    Package(package::Options),
    /// Start servers to experiment with. Without arguments: list the servers that the tests use.
    Servers(servers::Options),
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Compare { args } => compare::run(args),
        Command::Test(options) => test::run(options),
        Command::Install => test::install(),
        Command::Package(options) => package::run(&options),
        Command::Servers(options) => servers::run(options),
    };
    done.unwrap_or_else(|problem| {
        eprintln!("xtask: {problem}");
        ExitCode::FAILURE
    })
}
