//! Releases that nobody waits for.

use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::hold::Hold;
use crate::op::{Nothing, Op, start};
use crate::per_process::PerProcess;
use crate::runtime::RUNTIME;

/// The releases that nobody waits for, and who waits for all of them.
static PENDING: PerProcess<Pending> = PerProcess::new();

#[derive(Default)]
struct Pending {
    releases: usize,
    waiters: Vec<oneshot::Sender<()>>,
}

/// Releases a lock in the background.
pub(crate) fn release_later(hold: Hold) {
    let Ok(runtime) = RUNTIME.get() else { return drop(hold) };
    PENDING.with(|pending| pending.releases += 1);
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        if let Err(error) = hold.release().await {
            tracing::info!(error = format!("{error:#}"), "a release in the background");
        }
        PENDING.with(|pending| {
            pending.releases = pending.releases.saturating_sub(1);
            if pending.releases == 0 {
                // It fails if the waiter is gone.
                pending.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or_default());
            }
        });
    }));
}

/// Ends when all releases that nobody waits for have their answers.
#[pyfunction]
pub(crate) fn released() -> PyResult<Op> {
    let waits = PENDING.with(|pending| {
        (pending.releases > 0).then(|| {
            let (waiter, waits) = oneshot::channel();
            pending.waiters.push(waiter);
            waits
        })
    });
    start(async move {
        if let Some(waits) = waits {
            // The sender is there until it sends.
            drop(waits.await);
        }
        Ok(Nothing)
    })
}
