//! The clock of the cases, which their threads know.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::Harness;
use crate::rest::{note_rest, rest_when_idle};
use crate::skipping::{self, Hold};
use lockwell_core::{Clock, Moment};

thread_local! {
    /// The clock of the case that this thread works for.
    static CLOCK: RefCell<Clock> = const { RefCell::new(Clock::system()) };
}

/// A clock that goes on with the machine's, and skips the time in which all threads of a case rest. So a case
/// takes as long as what it computes. On other systems than Linux nothing is skipped.
///
/// It is for servers in this process whose times all come from this clock. What else waits, for a socket or
/// by a timer of the runtime, counts as resting.
pub fn skipping_clock() -> Clock {
    skipping::skipping()
}

/// A runtime for a case on this harness, with four threads of this name.
pub fn runtime(harness: &dyn Harness, name: &str) -> std::io::Result<Runtime> {
    runtime_of(&harness.clock(), name, 4)
}

pub(super) fn runtime_of(clock: &Clock, name: &str, threads: usize) -> std::io::Result<Runtime> {
    let (joined, joins) = mpsc::channel();
    let of_threads = clock.clone();
    // A thread that is about to start does not rest.
    let _hold = Hold::of(clock);
    let runtime = rest_when_idle(&mut Builder::new_multi_thread())
        .worker_threads(threads)
        .thread_name(name)
        .on_thread_start(move || {
            work_for(&of_threads);
            // Nobody listens to the threads for blocking calls, which come later.
            joined.send(()).unwrap_or_default();
        })
        .enable_all()
        .build()?;
    joins.iter().take(threads).for_each(drop);
    Ok(runtime)
}

/// A runtime on the calling thread, for a part of a case.
pub fn local_runtime() -> std::io::Result<Runtime> {
    rest_when_idle(&mut Builder::new_current_thread()).enable_all().build()
}

/// Waits for a future on the calling thread, which is none of those of the runtime. It rests while the future
/// is pending.
pub(super) fn block_on<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    runtime.block_on(poll_fn(|cx| {
        note_rest(false);
        let polled = work.as_mut().poll(cx);
        note_rest(polled.is_pending());
        polled
    }))
}

/// The calling thread has nothing to do until this returns.
pub(super) fn resting<T>(wait: impl FnOnce() -> T) -> T {
    note_rest(true);
    let value = wait();
    note_rest(false);
    value
}

/// From now on this thread works for a case with this clock.
pub(super) fn work_for(clock: &Clock) {
    CLOCK.set(clock.clone());
    skipping::join(clock);
}

/// The clock of the case that this thread works for.
pub(super) fn clock() -> Clock {
    CLOCK.with_borrow(Clock::clone)
}

pub(super) fn now() -> Moment {
    clock().now()
}

pub(super) fn has_passed(moment: Moment) -> bool {
    clock().has_passed(moment)
}

pub(super) async fn sleep(span: Duration) {
    clock().sleep(span).await;
}

/// Waits for a future for this time; `None` if it is not ready by then.
pub(super) async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    clock().timeout(limit, future).await
}

/// Blocks the thread for this time. It counts as resting meanwhile.
pub fn block(clock: &Clock, span: Duration) {
    skipping::block(clock, span);
}

/// Starts a thread that works for a case with this clock.
pub fn on_a_thread<T: Send + 'static>(
    clock: &Clock,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let clock = clock.clone();
    // No time is skipped before it is one of the threads of the clock.
    let hold = Hold::of(&clock);
    std::thread::spawn(move || {
        work_for(&clock);
        drop(hold);
        work()
    })
}
