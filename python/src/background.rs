//! Releases that nobody waits for.

use pyo3::prelude::*;

use crate::awaited::{Awaited, all_ended};
use crate::hold::Hold;
use crate::op::{Nothing, Op, start};
use crate::runtime::RUNTIME;

/// Releases a lock in the background.
pub(crate) fn release_later(hold: Hold) {
    let Ok(runtime) = RUNTIME.get() else { return drop(hold) };
    let awaited = Awaited::new();
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        if let Err(error) = hold.release().await {
            tracing::info!(error = format!("{error:#}"), "a release in the background");
        }
        drop(awaited);
    }));
}

/// Ends when all releases that nobody waits for have their answers, and the claims of calls that were
/// cancelled are withdrawn.
#[pyfunction]
pub(crate) fn released() -> PyResult<Op> {
    let ended = all_ended();
    start(async move {
        ended.await;
        // A call that was cancelled has dropped its request by now.
        lockwell::wait_for_releases().await;
        Ok(Nothing)
    })
}
