//! The thread of the operations, and releases that nobody waits for.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard};

use lockwell::LockGuard;
use lockwell::backend::SharedRuntime;
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::log;
use crate::mailbox::lock;
use crate::op::{Op, Value, start};

/// The thread that drives the operations of all clients of the process. Renewals have another one, that of
/// the library.
pub(crate) static RUNTIME: SharedRuntime = SharedRuntime::new("lockwell-python");

/// The releases that nobody waits for, and who waits for all of them.
static PENDING: Mutex<Pending> = Mutex::new(Pending { releases: 0, waiters: Vec::new() });

struct Pending {
    releases: usize,
    waiters: Vec<oneshot::Sender<()>>,
}

/// Releases a lock in the background.
pub(crate) fn release_later(guard: LockGuard) {
    let Ok(runtime) = RUNTIME.get() else { return drop(guard) };
    lock(&PENDING).releases += 1;
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        if let Err(error) = guard.release().await {
            tracing::info!(error = format!("{error:#}"), "a release in the background");
        }
        let mut pending = lock(&PENDING);
        pending.releases = pending.releases.saturating_sub(1);
        if pending.releases == 0 {
            // It fails if the waiter is gone.
            pending.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or_default());
        }
    }));
}

/// Ends when all releases that nobody waits for have their answers.
#[pyfunction]
pub(crate) fn released() -> PyResult<Op> {
    let waits = {
        let mut pending = lock(&PENDING);
        (pending.releases > 0).then(|| {
            let (waiter, waits) = oneshot::channel();
            pending.waiters.push(waiter);
            waits
        })
    };
    start(async move {
        if let Some(waits) = waits {
            // The sender is there until it sends.
            drop(waits.await);
        }
        Ok(Value::Nothing)
    })
}

thread_local! {
    /// What a forking thread has locked, so that no other thread has, and the child can use it.
    static FORKING: RefCell<Option<(MutexGuard<'static, Pending>, log::Locked)>> = const { RefCell::new(None) };
}

/// This thread is about to fork.
#[pyfunction]
pub(crate) fn before_fork() {
    let locked = (lock(&PENDING), log::locked());
    FORKING.set(Some(locked));
}

/// This thread has forked.
#[pyfunction]
pub(crate) fn after_fork(in_child: bool) {
    let Some((mut pending, mut log)) = FORKING.take() else { return };
    if in_child {
        // The threads, and whoever waits, are in the parent.
        pending.releases = 0;
        std::mem::forget(std::mem::take(&mut pending.waiters));
        log.forget();
    }
}
