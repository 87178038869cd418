//! The batcher under all orders of its threads: no caller is forgotten.
//!
//! A sender ends when nobody waits, and a caller that comes in this moment starts another one or is served by
//! this one. One that is forgotten would wait until its deadline. Here the clock stands still, and `loom`
//! reports a deadlock.
//!
//! Each model names a change of the code that it has caught.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockwell_core::TestClock;
use loom::future::block_on;
use loom::sync::Mutex;
use loom::thread::{JoinHandle, spawn};
use models::backend::batcher::{Attempt, Batcher, Bounds, Call, CallOutcome, Service};
use models::backend::lock;

const LONG: Duration = Duration::from_hours(1);

/// How often a thread is interrupted where it could go on, unless `LOOM_MAX_PREEMPTIONS` says something else.
const PREEMPTIONS: usize = 2;

/// A server that answers when it is told to.
struct Server {
    answers: Arc<Gate>,
    /// How often the call wakes its caller before it looks at the gate.
    yields: usize,
    /// Whether a caller may drive its call.
    is_light: bool,
    /// How many calls came to their end.
    ended: AtomicUsize,
}

/// Shut at first. Like a connection it wakes the caller that has polled it last.
struct Gate(Mutex<(bool, Option<Waker>)>);

impl Gate {
    fn new(is_open: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new((is_open, None))))
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut gate = lock(&self.0);
        gate.1 = Some(cx.waker().clone());
        if gate.0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn open(&self) {
        let waker = {
            let mut gate = lock(&self.0);
            gate.0 = true;
            gate.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Service for Server {
    type Key = ();
    type Request = u32;
    type Answer = u32;

    const PARTS: u8 = 2;

    fn shares(&self, _: &u32, _: &u32) -> bool {
        true
    }

    fn is_light(&self, (): &(), _: &u32) -> bool {
        self.is_light
    }

    async fn call(&self, (): &(), batch: &[&u32], _: Attempt) -> Vec<CallOutcome<u32>> {
        let mut yields = self.yields;
        std::future::poll_fn(|cx| {
            if yields > 0 {
                yields -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.answers.poll(cx)
        })
        .await;
        self.ended.fetch_add(1, Ordering::SeqCst);
        batch.iter().map(|request| CallOutcome::Answered(**request * 10)).collect()
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(model);
}

fn batcher(answers: &Arc<Gate>, yields: usize, is_light: bool, bounds: Bounds) -> Batcher<Server> {
    let server = Server { answers: Arc::clone(answers), yields, is_light, ended: AtomicUsize::new(0) };
    Batcher::with_clock(server, bounds, TestClock::new().clock())
}

/// Waits for the answer.
fn is_answered(call: Call<Server>, request: u32) {
    let reply = block_on(call).expect("an answer");
    assert_eq!(reply.into_answer(), request * 10);
}

/// A caller on a thread of its own.
fn caller(batcher: &Batcher<Server>, request: u32) -> JoinHandle<()> {
    let call = batcher.call((), request, LONG);
    spawn(move || is_answered(call, request))
}

fn poll_once(call: &mut Call<Server>) {
    let polled = Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

/// A sender ends while a caller comes.
///
/// Caught: an answer wakes nobody (`settle`); a sender that has ended still counts (`step`).
#[test]
fn two_callers_are_both_answered() {
    for bounds in [Bounds::new(), Bounds::new().batch(1)] {
        for is_light in [false, true] {
            check(move || {
                let batcher = batcher(&Gate::new(true), 1, is_light, bounds);
                let other = caller(&batcher, 1);
                is_answered(batcher.call((), 2, LONG), 2);
                other.join().unwrap();
            });
        }
    }
}

/// A caller that drives its call is not polled any more, while another comes.
///
/// Caught: its sender is not given to a task (`Call::begin`), or not if it is polled at that moment
/// (`Flight::poll`), or not if it has both requests (`needs_sender`).
#[test]
fn one_that_is_not_polled_any_more_delays_nobody() {
    for bounds in [Bounds::new(), Bounds::new().batch(1)] {
        check(move || {
            let batcher = batcher(&Gate::new(true), 2, true, bounds);
            let mut idle = batcher.call((), 1, LONG);
            // It comes into the queue on its own thread: otherwise the first would not be alone.
            let others = batcher.clone();
            let other = spawn(move || is_answered(others.call((), 2, LONG), 2));
            // The second time is between two parts of the answer.
            let polled = [(); 2]
                .map(|()| Pin::new(&mut idle).poll(&mut Context::from_waker(Waker::noop())).is_ready());
            other.join().unwrap();
            drop((polled, idle));
        });
    }
}

/// Caught: a caller that leaves takes the request of another one out of the count (`withdraw`).
#[test]
fn one_that_leaves_takes_nobody_along() {
    for is_light in [false, true] {
        check(move || {
            let answers = Gate::new(false);
            let batcher = batcher(&answers, 0, is_light, Bounds::new().batch(1));
            let mut leaves = batcher.call((), 1, LONG);
            poll_once(&mut leaves);
            let stays = caller(&batcher, 2);
            answers.open();
            drop(leaves);
            stays.join().unwrap();
        });
    }
}
