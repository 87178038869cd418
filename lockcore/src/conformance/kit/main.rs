//! The program that runs the suite.

use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Builder;

use super::target::{Connect, Missing, Target};
use crate::conformance::{Case, Pace, cases, serve_if_asked};
use crate::{Locks, Result};

/// Most cases wait most of the time, so more cases than processors run at the same time.
const THREADS: usize = 6;

/// How long the remaining tasks of a case may take to end.
const AFTER: Duration = Duration::from_secs(5);

/// The `main` of a test program that runs the suite: `tests/conformance.rs` with `harness = false`.
///
/// It takes the arguments of `cargo test` (a filter, `--list`, `--skip`, `--test-threads`); cases are called
/// `TARGET::CASE`. Cases that measure time run alone. Cases that stop a server use a separate one. Cases whose needs
/// the target does not meet are left out. If a server is not installed, its cases are ignored, or fail with
/// `LOCKWELL_REQUIRE_SERVERS=1`. Some cases start this program again, as another process that holds a lock.
///
/// `connect` makes a client from an address.
pub fn main<F>(
    connect: impl Fn(String) -> F + Send + Sync + 'static,
    targets: impl IntoIterator<Item = Target>,
) -> ExitCode
where
    F: Future<Output = Result<Locks>> + Send + 'static,
{
    serve_if_asked(&connect);
    let connect: Connect = Arc::new(move |url| Box::pin(connect(url)));
    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(THREADS));
    let targets: Vec<Arc<Target>> = targets.into_iter().map(Arc::new).collect();
    let gate = Arc::new(RwLock::new(()));
    let mut trials = Vec::new();
    // Cases that run alone come last, so that the others need not wait for them.
    for pace in [Pace::Free, Pace::Quiet] {
        for case in cases().iter().filter(|case| case.pace == pace) {
            for target in targets.iter().filter(|target| case.runs_with(&target.offers)) {
                let (gate, target, connect) = (Arc::clone(&gate), Arc::clone(target), Arc::clone(&connect));
                let name = format!("{}::{}", target.name, case.name);
                trials.push(Trial::ignorable_test(name, move || play(case, &target, &connect, &gate)));
            }
        }
    }
    // The servers end with the targets.
    drop(targets);
    libtest_mimic::run(&args, trials).exit_code()
}

fn play(case: &Case, target: &Target, connect: &Connect, gate: &RwLock<()>) -> Result<Completion, Failed> {
    let disturbs = case.disturbs_the_server();
    let harness = match target.harness(case, connect) {
        Ok(harness) => harness,
        Err(Missing::NotInstalled(reason)) if !servers_required() => {
            return Ok(Completion::ignored_with(reason));
        }
        Err(Missing::NotInstalled(reason) | Missing::Broken(reason)) => return Err(reason.into()),
    };
    // A case that failed has panicked with these in hand.
    let _turn = disturbs.then(|| target.turn.lock().unwrap_or_else(PoisonError::into_inner));
    let (_shared, _alone);
    match case.pace {
        Pace::Free => _shared = gate.read().unwrap_or_else(PoisonError::into_inner),
        Pace::Quiet => _alone = gate.write().unwrap_or_else(PoisonError::into_inner),
    }
    let runtime = Builder::new_multi_thread().worker_threads(4).thread_name("case").enable_all().build();
    let runtime = runtime.map_err(|error| format!("a runtime: {error}"))?;
    if disturbs && let Some(server) = harness.server() {
        // The case before may have failed while the server was stopped.
        runtime.block_on(server.resume());
    }
    runtime.block_on(case.run(harness));
    runtime.shutdown_timeout(AFTER);
    Ok(Completion::Completed)
}

fn servers_required() -> bool {
    std::env::var_os("LOCKWELL_REQUIRE_SERVERS").is_some_and(|value| value == "1")
}
