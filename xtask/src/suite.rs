//! `cargo xtask test`: all tests.

use std::io::stdout;
use std::process::{Command, ExitCode};

use testbed::{Family, Release};

use crate::busy::Busy;
use crate::install::{allowed, ensure};
use crate::packages::{SERVERS, TOOLS};
use crate::shell::{Result, cargo, exit_code, foreground};
use crate::watch::watched;
use crate::{HandedOn, ran, repeat, servers};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Keep this number of processors busy while the tests run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    busy: usize,
    /// Run the tests this many times, and count the failures. If a call is stopped, the next call at the same commit with the
    /// same arguments continues it.
    #[arg(long, value_name = "TIMES")]
    repeat: Option<usize>,
    /// With `--repeat`: start the count again.
    #[arg(long, requires = "repeat")]
    restart: bool,
    /// Which servers to test with. `usual`: those that are installed, MySQL, and one server of each newer Redis. `newer`: only
    /// newer releases, in all setups. `all`: both.
    #[arg(long, value_enum, default_value_t = Servers::Usual)]
    servers: Servers,
    /// Install and download nothing.
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    rest: HandedOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Servers {
    Usual,
    Newer,
    All,
}

impl Servers {
    /// Its name for the conformance suite.
    fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Newer => "newer",
            Self::All => "all",
        }
    }

    /// The releases to be fetched for it.
    fn needed(self) -> impl Iterator<Item = &'static Release> {
        let newer = Release::all().iter().filter(|release| release.is_newer());
        newer.filter(move |release| self != Self::Usual || release.is_usual())
    }
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { busy, repeat, restart, servers, no_install, rest: HandedOn { mut args } } = options;
    let allowed = allowed(&mut args) && !no_install;
    ensure(SERVERS.iter().chain(&TOOLS), allowed);
    let mut remarks = if allowed { servers::fetch(servers.needed()) } else { Vec::new() };
    let (ran, not_run) = ran::fresh()?;
    let told = |command: &mut Command| {
        command.env("LOCKWELL_SERVERS", servers.name());
        command.env("LOCKWELL_REPORT", &ran).env("LOCKWELL_NOT_RUN", &not_run);
    };
    if (busy > 0 || repeat.is_some())
        && let Some(building) = building(&args, servers)
    {
        // The loops are there for the tests, not for the compiler.
        let built = foreground(cargo().args(building))?;
        if built != ExitCode::SUCCESS {
            return Ok(built);
        }
    }
    let loops = Busy::start(busy)?;
    let tests = || {
        let mut tests = cargo();
        tests.args(command(&args, servers)).args(&args);
        told(&mut tests);
        tests
    };
    let mut failed = Vec::new();
    let done = match repeat {
        None => watched(&mut tests(), &mut stdout()).map(|(status, failures)| {
            failed.extend(failures.remarks());
            exit_code(status)
        }),
        Some(times) => repeat::run(times, restart, busy, &args, tests),
    };
    let mut done = done?;
    if servers != Servers::Usual && args.is_empty() && repeat.is_none() {
        for release in servers.needed().filter(|release| release.version().is_ok()) {
            if let Some(mut tests) = of_backend(release) {
                let (status, failures) = watched(&mut tests, &mut stdout())?;
                failed.extend(failures.remarks());
                done = if done == ExitCode::SUCCESS { exit_code(status) } else { done };
            }
        }
    }
    drop(loops);
    // The names of failed tests are the last lines, where nobody misses them.
    let ran = ran::take(&ran, &not_run);
    remarks.extend(ran.iter().flatten().cloned());
    for remark in remarks.into_iter().chain(failed) {
        println!("{remark}");
    }
    ran.map(|_| done)
}

/// Not nextest: it runs each test in a process of its own, and each process would start its own servers. It runs no
/// doc tests either. `--no-fail-fast`: after a long run all failures are of interest.
fn command(args: &[String], servers: Servers) -> Vec<&'static str> {
    if servers == Servers::Newer {
        return vec!["test", "--all-features", "--no-fail-fast", "--test", "conformance"];
    }
    let chosen = |arg: &String| arg.starts_with("-p") || arg == "--package" || arg.starts_with("--package=");
    // Beside --workspace, cargo would take no notice of the chosen package.
    let scope = if of_cargo(args).iter().any(chosen) { &[][..] } else { &["--workspace"][..] };
    [&["test"][..], scope, &["--all-features", "--no-fail-fast"][..]].concat()
}

/// The own tests of the backend, on a release; those of the SQL backend are for what the machine has.
fn of_backend(release: &Release) -> Option<Command> {
    let (package, test) = match release.family() {
        Family::Redis => ("lockwell-redis", "redis"),
        Family::ZooKeeper => ("lockwell-zk", "zk"),
        _ => return None,
    };
    let mut tests = cargo();
    tests.args(["test", "--all-features", "--no-fail-fast", "--package", package, "--test", test]);
    tests.env("LOCKWELL_RELEASES", release.name());
    Some(tests)
}

/// The arguments for cargo. Those behind them are for the tests.
fn of_cargo(args: &[String]) -> &[String] {
    args.split(|arg| arg == "--").next().unwrap_or_default()
}

/// How to build the tests only. Tests of the documentation are built as they are run.
fn building(args: &[String], servers: Servers) -> Option<Vec<String>> {
    let ours = of_cargo(args);
    if ours.iter().any(|arg| arg == "--doc") {
        return None;
    }
    let words = command(args, servers).into_iter().map(str::to_owned);
    Some(words.chain(ours.iter().cloned()).chain(["--no-run".to_owned()]).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn shown(line: &str) -> String {
        command(&words(line), Servers::Usual).join(" ")
    }

    #[test]
    fn everything_is_tested_unless_a_package_is_chosen() {
        assert_eq!(shown(""), "test --workspace --all-features --no-fail-fast");
        assert_eq!(shown("--test conformance -- -p"), "test --workspace --all-features --no-fail-fast");
        assert_eq!(shown("-p lockwell-core"), "test --all-features --no-fail-fast");
        assert_eq!(shown("--package=lockwell-core"), "test --all-features --no-fail-fast");
    }

    #[test]
    fn what_every_run_needs_is_fetched() {
        let needed = |servers: Servers| servers.needed().map(Release::name).collect::<Vec<_>>();
        assert_eq!(needed(Servers::Usual), ["redis8", "valkey9", "mysql9"]);
        assert!(needed(Servers::All).contains(&"mariadb11"));
    }

    #[test]
    fn tests_are_built_without_being_run() {
        let built = |line| building(&words(line), Servers::Usual).map(|args| args.join(" "));
        let expected = "test --all-features --no-fail-fast -p lockwell-core --no-run";
        assert_eq!(built("-p lockwell-core -- lease").as_deref(), Some(expected));
        assert_eq!(built("--doc"), None);
    }

    #[test]
    fn what_is_not_ours_is_handed_on() {
        #[derive(Debug, Parser)]
        struct Program {
            #[command(flatten)]
            options: Options,
        }
        let parsed = |line: &str| Program::try_parse_from(words(line)).map(|program| program.options);
        let options =
            parsed("test --no-install --busy 4 --repeat=10 --restart --test x -- --busy redis::").unwrap();
        assert_eq!((options.busy, options.repeat, options.restart), (4, Some(10), true));
        assert!(options.no_install);
        assert_eq!(options.rest.args, words("--test x -- --busy redis::"));
        let options = parsed("test -p lockwell-core --no-install").unwrap();
        assert_eq!((options.busy, options.repeat, options.restart), (0, None, false));
        assert_eq!(options.rest.args, words("-p lockwell-core --no-install"));
        assert!(parsed("test --restart").is_err());
        assert!(parsed("test --busy x").is_err());
    }
}
