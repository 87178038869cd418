//! The conformance suite of lockcore, on every backend that is compiled in.
//!
//! `cargo test --all-features --test conformance [-- FILTER]`; names are `BACKEND::CASE`, so `-- sqlite::`
//! runs one backend, and `-- blackhole` a few cases on all. Servers are started by `testbed`, once per run.
//! Where one is not installed its cases are ignored, and say so; with `LOCKWELL_REQUIRE_SERVERS=1` they fail,
//! unless it is a release that has to be fetched. `LOCKWELL_SERVERS=fetched` runs those, `all` runs
//! everything. With `LOCKWELL_HOLDER`, the program of the second process, only the cases with one run.

mod support {
    pub(crate) mod canary;
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) mod databases;
    #[cfg(feature = "zk")]
    pub(crate) mod ensembles;
    #[cfg(feature = "etcd")]
    pub(crate) mod etcd;
    pub(crate) mod files;
    #[cfg(any(feature = "redis", feature = "zk", feature = "etcd"))]
    pub(crate) mod group;
    pub(crate) mod memory;
    #[cfg(feature = "redis")]
    pub(crate) mod redis;
    #[cfg(all(feature = "redis", feature = "tls"))]
    pub(crate) mod redis_cluster;
    #[cfg(all(feature = "redis", feature = "tls"))]
    pub(crate) mod redis_sentinel;
    #[cfg(feature = "redis")]
    pub(crate) mod redlock;
    pub(crate) mod report;
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk", feature = "etcd"))]
    pub(crate) mod servers;
    pub(crate) mod targets;
    pub(crate) mod test_double;
}

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use lockwell::conformance::Suite;

use support::canary::{self, Canary};
use support::{report, targets};

/// The exit code where a log shows an owner. That of failed tests is 101.
const LOGGED: u8 = 102;

fn main() -> ExitCode {
    let suite = Suite::new(lockwell::connect);
    let canary = Canary::install();
    let targets = targets::all();
    let schemes: BTreeSet<&str> = targets.iter().flat_map(|target| target.schemes).copied().collect();
    let releases: BTreeMap<_, _> =
        targets.iter().filter_map(|it| Some((it.inner.name().to_owned(), it.release?))).collect();
    let suite = suite.check("an_owner_that_is_logged_is_found", canary::bites);
    let mut suite = suite.check("what_few_targets_have_are_cases", targets::policy_is_of_cases);
    if targets::are_all_backends() {
        suite = suite.check("no_backend_is_forgotten", move || forgotten(&schemes));
    }
    let conclusion = suite.targets(targets.into_iter().map(|target| target.inner)).run();
    if let Err(problem) = report::write(conclusion.records(), &releases) {
        println!("no report: {problem}");
        return ExitCode::FAILURE;
    }
    // After all the others, and so not one of them.
    for place in canary.known() {
        eprintln!("known to log an owner: {place}");
    }
    let found = canary.found();
    if !found.is_empty() {
        println!("An owner is logged here:");
        for place in found {
            println!("  {place}");
        }
        return ExitCode::from(LOGGED);
    }
    conclusion.exit_code()
}

/// A backend that is compiled in and not listed here would never be tested.
fn forgotten(listed: &BTreeSet<&str>) -> Result<(), String> {
    let compiled: BTreeSet<&str> = lockwell::schemes().collect();
    if compiled == *listed {
        return Ok(());
    }
    Err(format!("compiled in: {compiled:?}; listed in tests/support/targets.rs: {listed:?}"))
}
