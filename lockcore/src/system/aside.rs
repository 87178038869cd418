//! Threads that run code of the application for threads that must not wait for it.
//!
//! A `tracing` subscriber and a recorder of metrics are code of the application: they may write to a full
//! pipe, take a lock, or panic. On the keeper thread that would stop the renewals of all locks. So the keeper
//! hands such calls to another thread: one for each kind, so that a subscriber that blocks costs no metrics.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::moment::Moment;
use super::per_process::PerProcess;

/// After this time a thread that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(1);

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

type AsideCall = Box<dyn FnOnce() + Send>;

/// A thread for calls of one kind. It is started by the first call.
pub(crate) struct Aside {
    name: &'static str,
    calls: PerProcess<SyncSender<AsideCall>>,
    dropped: AtomicU64,
    /// Until when the start is not tried again, in nanoseconds of the clock: no mutex, which a child could not use.
    refused_until: AtomicU64,
}

impl Aside {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, calls: PerProcess::new(), dropped: AtomicU64::new(0), refused_until: AtomicU64::new(0) }
    }

    /// Runs this on the thread, after all earlier ones. It is dropped if too many wait already, or if the
    /// thread cannot be started. A call a second later tries to start it again.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        let start = |calls: Receiver<AsideCall>| {
            let thread = std::thread::Builder::new().name(self.name.into());
            thread.spawn(move || run_all(&calls)).map(drop)
        };
        self.run_by(start, call);
    }

    fn run_by(
        &self,
        start: impl FnOnce(Receiver<AsideCall>) -> io::Result<()>,
        call: impl FnOnce() + Send + 'static,
    ) {
        // A forked child does not inherit the thread, so it starts one.
        let calls = self.calls.get_or_try_init(|| {
            // Each call would try it, at a time when the system has no threads left.
            if !Moment::from_nanos(self.refused_until.load(Ordering::Relaxed)).has_passed() {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
            let (sender, receiver) = sync_channel(WAITING);
            let started = start(receiver);
            if started.is_err() {
                self.refused_until.store(Moment::now().after(AGAIN).as_nanos(), Ordering::Relaxed);
            }
            started.map(|()| sender)
        });
        if !calls.is_ok_and(|calls| calls.try_send(Box::new(call)).is_ok()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many calls were dropped since the last time that somebody has asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

fn run_all(calls: &Receiver<AsideCall>) {
    while let Ok(call) = calls.recv() {
        // The panic hook has reported it.
        drop(catch_unwind(AssertUnwindSafe(call)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_could_not_be_started_is_started_by_a_later_call() {
        static ASIDE: Aside = Aside::new("test-aside");
        let refuse = |_| Err(io::Error::other("no more threads"));
        ASIDE.run_by(refuse, || unreachable!("there is no thread"));
        ASIDE.run(|| unreachable!("it is not tried at once"));
        assert_eq!(ASIDE.take_dropped(), 2);
        ASIDE.refused_until.store(Moment::now().as_nanos(), Ordering::Relaxed);
        let (say, said) = mpsc::channel();
        ASIDE.run(move || say.send(std::thread::current().name().map(str::to_owned)).unwrap());
        let name = said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((name.as_deref(), ASIDE.take_dropped()), (Some("test-aside"), 0));
    }
}
