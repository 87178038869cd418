//! Threads that run code of the application for threads that must not wait for it.
//!
//! A `tracing` subscriber and a recorder of metrics are code of the application: they may write to a full
//! pipe, take a lock, or panic. On the keeper thread that would stop the renewals of all locks. So the keeper
//! hands such calls to another thread: one for each kind, so that a subscriber that blocks costs no metrics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::per_process::PerProcess;

/// The most calls that wait for such a thread. Calls beyond that are only counted.
const WAITING: usize = 4096;

thread_local! {
    /// Whether this thread must not run code of the application.
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread has to hand calls of the application's code to others.
#[cfg(feature = "metrics")]
pub(crate) fn must_not_wait() -> bool {
    MUST_NOT_WAIT.get()
}

/// From now on the calling thread hands calls of the application's code to others.
pub(super) fn never_wait_here() {
    MUST_NOT_WAIT.set(true);
}

type Call = Box<dyn FnOnce() + Send>;

/// A thread for calls of one kind. It is started by the first call.
pub(crate) struct Aside {
    name: &'static str,
    calls: PerProcess<Option<SyncSender<Call>>>,
    dropped: AtomicU64,
}

impl Aside {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, calls: PerProcess::new(), dropped: AtomicU64::new(0) }
    }

    /// Runs this on the thread, after all earlier ones. It is dropped if too many wait already.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        // A forked child does not inherit the thread, so it starts one.
        let calls = self.calls.get_or_init(|| {
            let (sender, receiver) = sync_channel(WAITING);
            let thread = std::thread::Builder::new().name(self.name.into());
            thread.spawn(move || run_all(&receiver)).ok().map(|_| sender)
        });
        if calls.is_none_or(|calls| calls.try_send(Box::new(call)).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many calls were dropped since the last time that somebody has asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

fn run_all(calls: &Receiver<Call>) {
    while let Ok(call) = calls.recv() {
        // The panic hook has reported it.
        drop(catch_unwind(AssertUnwindSafe(call)));
    }
}
