//! Runs one case on one backend.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use libtest_mimic::{Completion, Failed};
use lockwell::conformance::{Case, Pace};
use tokio::runtime::Builder;

use super::report::Report;
use super::targets::{Missing, Target};

/// Lets quiet cases run alone, and the others together.
#[derive(Debug, Default)]
pub(crate) struct Gate(RwLock<()>);

/// Held while a case runs.
pub(crate) enum Pass<'a> {
    Free(#[allow(dead_code)] RwLockReadGuard<'a, ()>),
    Quiet(#[allow(dead_code)] RwLockWriteGuard<'a, ()>),
}

impl Gate {
    pub(crate) fn enter(&self, pace: Pace) -> Pass<'_> {
        // A case that failed has panicked with its pass in hand.
        match pace {
            Pace::Free => Pass::Free(self.0.read().unwrap_or_else(PoisonError::into_inner)),
            _ => Pass::Quiet(self.0.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

fn lock(turn: &Mutex<()>) -> MutexGuard<'_, ()> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a case, or says why it cannot be run.
pub(crate) fn play(case: &Case, target: &Target, gate: &Gate, report: &Report) -> Result<Completion, Failed> {
    let disturbs = case.disturbs_the_server();
    let harness = match target.harness(case) {
        Ok(harness) => harness,
        Err(Missing::NotInstalled(reason)) if !testbed::servers_required() || target.is_newer() => {
            report.missing(target, &reason);
            return Ok(Completion::ignored_with(reason));
        }
        Err(Missing::NotInstalled(reason) | Missing::Broken(reason)) => return Err(reason.into()),
    };
    let _turn = disturbs.then(|| lock(&target.turn));
    let _pass = gate.enter(case.pace);
    let runtime = Builder::new_multi_thread().worker_threads(4).thread_name("case").enable_all().build();
    let runtime = runtime.map_err(|error| format!("a runtime: {error}"))?;
    if disturbs && let Some(server) = harness.server() {
        // The case before may have failed while the server was stopped.
        runtime.block_on(server.resume());
    }
    report.watch(target, || {
        runtime.block_on(case.run(harness));
        runtime.shutdown_timeout(Duration::from_secs(5));
    });
    Ok(Completion::Completed)
}
