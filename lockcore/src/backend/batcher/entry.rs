//! One request: what its caller and its call share.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::retry::Retry;
use super::service::{Reply, Service, no_answer};
use crate::backend::batcher_sync::{AtomicBool, Mutex, lock};
use crate::system::wake_tasks;
use crate::{Error, Moment, Result};

/// One request, from its caller's first step to its answer.
pub(super) struct Entry<S: Service> {
    pub(super) key: S::Key,
    pub(super) request: S::Request,
    pub(super) deadline: Moment,
    /// Whether the request waits in the queue of its key.
    pub(super) queued: AtomicBool,
    /// Whether a call has had it.
    sent: std::sync::atomic::AtomicBool,
    /// When it was put into the queue.
    pub(super) since: Moment,
    /// Set when its outcome became unknown.
    pub(super) retry: std::sync::Mutex<Option<Retry>>,
    slot: Mutex<AnswerSlot<S::Answer>>,
}

/// The place of the answer for the caller.
struct AnswerSlot<T> {
    answer: Option<Result<Reply<T>>>,
    /// The request has, or had, its answer. A second answer does not replace it.
    settled: bool,
    /// The last failure.
    last: Option<Error>,
    waker: Option<Waker>,
    /// The caller was dropped.
    left: bool,
    /// A try whose answer was lost may have been executed.
    in_doubt: bool,
}

impl<S: Service> Entry<S> {
    pub(super) fn new(key: S::Key, request: S::Request, now: Moment, limit: Duration) -> Arc<Self> {
        let (answer, last, waker) = (None, None, None);
        let slot = AnswerSlot { answer, settled: false, last, waker, left: false, in_doubt: false };
        Arc::new(Self {
            key,
            request,
            deadline: now.after(limit),
            queued: AtomicBool::new(false),
            sent: false.into(),
            since: now,
            retry: std::sync::Mutex::default(),
            slot: Mutex::new(slot),
        })
    }

    /// How long it may take.
    pub(super) fn limit(&self) -> Duration {
        self.deadline.since(self.since)
    }

    /// The answer, if there is one. Otherwise the answer will wake the caller.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Result<Reply<S::Answer>>> {
        let mut slot = lock(&self.slot);
        if let Some(answer) = slot.answer.take() {
            return Poll::Ready(answer);
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The caller looks for the answer itself after what it does now, and is not to be woken for it.
    pub(super) fn forget_waker(&self) {
        // Not under the mutex: with its last waker a task is dropped.
        let waker = lock(&self.slot).waker.take();
        drop(waker);
    }

    pub(super) fn settle(&self, answer: Result<S::Answer>) {
        let mut slot = lock(&self.slot);
        if std::mem::replace(&mut slot.settled, true) {
            return;
        }
        let in_doubt = slot.in_doubt;
        slot.answer = Some(answer.map(|answer| Reply { answer, in_doubt }));
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            wake_tasks(|| waker.wake());
        }
    }

    /// Nobody will answer.
    pub(super) fn give_up(&self) {
        self.settle(Err(no_answer(self.last_error().as_ref())));
    }

    pub(super) fn leave(&self) {
        let mut slot = lock(&self.slot);
        slot.left = true;
        slot.waker = None;
    }

    /// What is known of it if its outcome is unknown.
    pub(super) fn retry(&self) -> Option<Retry> {
        *crate::system::lock(&self.retry)
    }

    pub(super) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    pub(super) fn note_sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        lock(&self.slot).in_doubt
    }

    pub(super) fn has_left(&self) -> bool {
        lock(&self.slot).left
    }

    /// The last failure.
    pub(super) fn last_error(&self) -> Option<Error> {
        lock(&self.slot).last.take()
    }

    /// Notes a failure. One that names no cause, such as that the last call had no answer in time, says less
    /// than one before it that names its cause.
    pub(super) fn note(&self, error: Error, in_doubt: bool) {
        let mut slot = lock(&self.slot);
        slot.in_doubt |= in_doubt;
        let says_less =
            |last: &Error| last.kind() == error.kind() && last.source().is_some() && error.source().is_none();
        if !slot.last.as_ref().is_some_and(says_less) {
            slot.last = Some(error);
        }
    }
}
