//! The batcher under all orders of its threads: no caller is forgotten.
//!
//! Callers wake each other by hand, so one wake-up too few is a caller that waits for ever. In production a
//! timer would rescue it after a while, and so hide the mistake. Here the clock stands still, so the timer
//! never fires, and `loom` reports a deadlock.
//!
//! Each model names a change of the code that it has caught. CONTRIBUTING.md says how they are run.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::thread::{JoinHandle, spawn};

use super::sync::lock;
use super::*;
use crate::TestClock;

const LONG: Duration = Duration::from_hours(1);

/// How often a thread is interrupted where it could go on, unless `LOOM_MAX_PREEMPTIONS` says something else.
const PREEMPTIONS: usize = 2;

/// A server that answers when it is told to.
struct Server {
    answers: Arc<Gate>,
    /// Whether the call wakes its caller once more before it looks at the gate.
    yields: bool,
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

    fn shares(&self, _: &u32, _: &u32) -> bool {
        true
    }

    async fn call(&self, (): &(), batch: &[&u32], _: Attempt) -> Vec<CallOutcome<u32>> {
        let mut yields = self.yields;
        std::future::poll_fn(|cx| {
            if std::mem::take(&mut yields) {
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

fn batcher(answers: &Arc<Gate>, yields: bool, bounds: Bounds) -> Batcher<Server> {
    let server = Server { answers: Arc::clone(answers), yields, ended: AtomicUsize::new(0) };
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

/// The same, which begins to poll once it was polled here.
fn moved_caller(mut call: Call<Server>, request: u32) -> JoinHandle<()> {
    poll_once(&mut call);
    spawn(move || is_answered(call, request))
}

fn poll_once(call: &mut Call<Server>) {
    let polled = Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

/// Caught: an answer wakes nobody (`settle`).
#[test]
fn two_callers_are_both_answered() {
    check(|| {
        let batcher = batcher(&Gate::new(true), true, Bounds::new());
        let other = caller(&batcher, 1);
        is_answered(batcher.call((), 2, LONG), 2);
        other.join().unwrap();
    });
}

/// Caught: the same.
#[test]
fn of_three_callers_that_share_nothing_none_is_forgotten() {
    for under_way in [1, 2] {
        check(move || {
            let bounds = Bounds::new().batch(1).under_way(under_way);
            let batcher = batcher(&Gate::new(true), false, bounds);
            let others = [caller(&batcher, 1), caller(&batcher, 2)];
            is_answered(batcher.call((), 3, LONG), 3);
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}

/// Caught: the caller that leaves wakes nobody of its batch; its call still counts as driven; a caller leaves
/// its waker after it has looked, not before; a caller that has gone on with the call is overlooked while it
/// polls, since it has no waker then, and the call is dropped. The last one was so at first, and this model
/// has found it.
#[test]
fn a_call_goes_on_when_the_caller_that_polls_it_leaves() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new());
        let mut leaves = batcher.call((), 1, LONG);
        let stays = batcher.call((), 2, LONG);
        poll_once(&mut leaves);
        let stays = moved_caller(stays, 2);
        let server = spawn(move || answers.open());
        drop(leaves);
        stays.join().unwrap();
        server.join().unwrap();
    });
}

/// The same, where the one that stays waits for the next call.
///
/// Caught: only callers of the batch go on with a call (`next_pollers`).
#[test]
fn a_call_that_only_others_wait_for_is_finished_by_them() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new().batch(1));
        let mut leaves = batcher.call((), 1, LONG);
        poll_once(&mut leaves);
        let stays = moved_caller(batcher.call((), 2, LONG), 2);
        let server = spawn(move || answers.open());
        drop(leaves);
        stays.join().unwrap();
        server.join().unwrap();
        assert_eq!(batcher.service().ended.load(Ordering::SeqCst), 2, "no call was dropped");
    });
}

/// The one that is to go on with the call leaves as well.
///
/// Caught: it does not look for a call that was left to it (`take_left` in `end`).
#[test]
fn a_call_goes_on_when_two_of_its_callers_leave() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new());
        let mut leaves = batcher.call((), 1, LONG);
        let mut leaves_too = batcher.call((), 2, LONG);
        let stays = batcher.call((), 3, LONG);
        poll_once(&mut leaves);
        poll_once(&mut leaves_too);
        let stays = moved_caller(stays, 3);
        let leaving = spawn(move || drop(leaves_too));
        drop(leaves);
        answers.open();
        leaving.join().unwrap();
        stays.join().unwrap();
    });
}

/// A call of a future that exists and is not polled.
///
/// Caught: the end of a call wakes the first in the queue and nobody else.
#[test]
fn a_caller_that_was_never_polled_holds_nobody_up() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new().batch(1));
        let first = moved_caller(batcher.call((), 1, LONG), 1);
        let unpolled = batcher.call((), 2, LONG);
        let third = moved_caller(batcher.call((), 3, LONG), 3);
        answers.open();
        first.join().unwrap();
        third.join().unwrap();
        drop(unpolled);
    });
}

/// The end of the first call wakes the second caller, which leaves in this moment.
///
/// Caught: a caller that leaves does not wake the next (`end`).
#[test]
fn a_caller_that_is_woken_and_leaves_passes_it_on() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new().batch(1));
        let first = moved_caller(batcher.call((), 1, LONG), 1);
        let mut leaves = batcher.call((), 2, LONG);
        poll_once(&mut leaves);
        let third = moved_caller(batcher.call((), 3, LONG), 3);
        answers.open();
        drop(leaves);
        first.join().unwrap();
        third.join().unwrap();
    });
}

/// Caught: the end of a call wakes nobody (neither `finish` nor `end`; one of them is enough).
#[test]
fn a_caller_may_leave_when_its_answer_comes() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new().batch(2));
        let first = batcher.call((), 1, LONG);
        let mut leaves = batcher.call((), 2, LONG);
        let first = moved_caller(first, 1);
        poll_once(&mut leaves);
        let third = moved_caller(batcher.call((), 3, LONG), 3);
        answers.open();
        drop(leaves);
        first.join().unwrap();
        third.join().unwrap();
    });
}

/// Without a runtime there is no task that finishes the call, so it is dropped.
///
/// Caught: a call that is dropped stays among those under way, or wakes nobody (`Last`).
#[test]
fn a_call_whose_last_caller_leaves_makes_room() {
    check(|| {
        let answers = Gate::new(false);
        let batcher = batcher(&answers, false, Bounds::new());
        let mut last = batcher.call((), 1, LONG);
        poll_once(&mut last);
        let comes = {
            let batcher = batcher.clone();
            spawn(move || is_answered(batcher.call((), 2, LONG), 2))
        };
        let server = spawn(move || answers.open());
        drop(last);
        comes.join().unwrap();
        server.join().unwrap();
    });
}
