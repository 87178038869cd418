//! The conformance suite of lockcore, on every backend that is compiled in.
//!
//! `cargo test --all-features --test conformance [-- FILTER]`; names are `BACKEND::CASE`, so `-- sqlite::` runs one
//! backend, and `-- blackhole` a few cases on all. Servers are started by `testbed`, once per run. Where one is not
//! installed its cases are ignored, and say so; with `LOCKWELL_REQUIRE_SERVERS=1` they fail, unless it is a newer release
//! beside that of the machine. `LOCKWELL_SERVERS=newer` runs those, `all` runs everything.

mod support {
    pub(crate) mod canary;
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) mod databases;
    #[cfg(feature = "zk")]
    pub(crate) mod ensembles;
    pub(crate) mod files;
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
    pub(crate) mod run;
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "redis", feature = "zk"))]
    pub(crate) mod servers;
    pub(crate) mod targets;
}

use std::collections::BTreeSet;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use lockwell::conformance::{Pace, cases, serve_if_asked};

use support::canary::Canary;
use support::report::Report;
use support::run::Gate;
use support::targets::{self, Target};
use support::{canary, run};

/// Most cases wait most of the time, so more of them than there are processors can run at a time.
const THREADS: usize = 6;

fn main() {
    serve_if_asked(lockwell::connect);
    let canary = Canary::install();
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(THREADS));
    let targets: Vec<Arc<Target>> = targets::all().into_iter().map(Arc::new).collect();
    let report = Arc::new(Report::default());
    let conclusion = libtest_mimic::run(&args, trials(&targets, &report));
    let count = |target: &Target| cases().iter().filter(|case| case.runs_with(&target.offers)).count();
    if let Err(problem) = report.write(targets.iter().map(|target| &**target), count) {
        println!("failures:\n    no_report\n\n{problem}");
        std::process::exit(101);
    }
    // Ends the servers; `exit` would drop nothing.
    drop(targets);
    // After all the others, and so not one of them; but it is listed like them.
    for place in canary.known() {
        println!("known to log an owner: {place}");
    }
    let found = canary.found();
    if !found.is_empty() {
        println!("failures:\n    no_owner_is_logged\n\nAn owner is logged here:");
        for place in found {
            println!("  {place}");
        }
        std::process::exit(101);
    }
    conclusion.exit();
}

fn trials(targets: &[Arc<Target>], report: &Arc<Report>) -> Vec<Trial> {
    let gate = Arc::new(Gate::default());
    let schemes: BTreeSet<&str> = targets.iter().flat_map(|target| target.schemes).copied().collect();
    let mut trials = vec![Trial::test("an_owner_that_is_logged_is_found", canary::bites)];
    if targets::are_all_backends() {
        trials.push(Trial::test("no_backend_is_forgotten", move || forgotten(&schemes)));
    }
    // Those that want the machine for themselves come last, so that the others need not wait for them.
    for pace in [Pace::Free, Pace::Quiet] {
        for case in cases().iter().filter(|case| case.pace == pace) {
            for target in targets.iter().filter(|target| case.runs_with(&target.offers)) {
                let (gate, target, report) = (Arc::clone(&gate), Arc::clone(target), Arc::clone(report));
                let name = format!("{}::{}", target.name, case.name);
                trials.push(Trial::ignorable_test(name, move || run::play(case, &target, &gate, &report)));
            }
        }
    }
    trials
}

/// A backend that is compiled in and not listed here would never be tested.
fn forgotten(listed: &BTreeSet<&str>) -> Result<(), Failed> {
    let compiled: BTreeSet<&str> = lockwell::schemes().collect();
    if compiled == *listed {
        return Ok(());
    }
    Err(format!("compiled in: {compiled:?}; listed in tests/support/targets.rs: {listed:?}").into())
}
