//! The conformance suite of lockcore on this backend alone: on a single server, and on an ensemble where there is one.
//!
//! `cargo test -p backend-zk --test conformance [-- FILTER]`.

mod support {
    pub(crate) mod harness;
    pub(crate) mod run;
}

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use lockcore::conformance::{Pace, cases, serve_if_asked};

use support::harness::{self, Target};
use support::run::{self, Gate};

fn main() {
    serve_if_asked(harness::connect);
    if std::env::var_os("ZK_LOG").is_some() {
        tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_env("ZK_LOG")).init();
    }
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(6));
    let targets: Vec<Arc<Target>> = harness::targets().into_iter().map(Arc::new).collect();
    let gate = Arc::new(Gate::default());
    let mut trials = Vec::new();
    for pace in [Pace::Free, Pace::Quiet] {
        for case in cases().iter().filter(|case| case.pace == pace) {
            for target in targets.iter().filter(|target| target.runs(case)) {
                let (gate, target) = (Arc::clone(&gate), Arc::clone(target));
                let name = format!("{}::{}", target.name, case.name);
                trials.push(Trial::ignorable_test(name, move || run::play(case, &target, &gate)));
            }
        }
    }
    let conclusion = libtest_mimic::run(&args, trials);
    // Ends the servers; `exit` would drop nothing.
    drop(targets);
    conclusion.exit();
}
