//! A call under way: its requests, and the future that executes it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::retry::Retry;
use super::service::{Reply, Service, no_answer};
use super::sync::{AtomicBool, Mutex, lock};
use crate::{Error, ErrorKind, Moment, Result};

/// One request, from its caller's first step to its answer.
pub(super) struct Entry<S: Service> {
    pub(super) key: S::Key,
    pub(super) request: S::Request,
    pub(super) deadline: Moment,
    in_doubt: AtomicBool,
    /// Whether the request waits in the queue of its key.
    pub(super) queued: AtomicBool,
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
}

impl<S: Service> Entry<S> {
    pub(super) fn new(key: S::Key, request: S::Request, now: Moment, limit: Duration) -> Arc<Self> {
        let slot = AnswerSlot { answer: None, settled: false, last: None, waker: None, left: false };
        Arc::new(Self {
            key,
            request,
            deadline: now.after(limit),
            in_doubt: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            since: now,
            retry: std::sync::Mutex::default(),
            slot: Mutex::new(slot),
        })
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

    /// The answer, if there is one. Otherwise a later answer does not wake the caller. For a caller that
    /// polls its call itself: it would wake itself, and a runtime would poll it once more, on another thread.
    pub(super) fn take(&self) -> Poll<Result<Reply<S::Answer>>> {
        let mut slot = lock(&self.slot);
        slot.waker = None;
        slot.answer.take().map_or(Poll::Pending, Poll::Ready)
    }

    pub(super) fn settle(&self, answer: Result<S::Answer>) {
        let in_doubt = self.in_doubt.load(Ordering::Relaxed);
        let mut slot = lock(&self.slot);
        if std::mem::replace(&mut slot.settled, true) {
            return;
        }
        slot.answer = Some(answer.map(|answer| Reply { answer, in_doubt }));
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the caller to take part in the call. False if it was dropped.
    pub(super) fn wake(&self) -> bool {
        let slot = lock(&self.slot);
        let (left, waker) = (slot.left, slot.waker.clone());
        drop(slot);
        match waker {
            Some(waker) if !left => waker.wake(),
            // A caller that was not polled yet will check by itself.
            _ => return false,
        }
        true
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

    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    pub(super) fn has_left(&self) -> bool {
        lock(&self.slot).left
    }

    /// The last failure.
    pub(super) fn last_error(&self) -> Option<Error> {
        lock(&self.slot).last.take()
    }

    pub(super) fn note(&self, error: Error, in_doubt: bool) {
        self.in_doubt.fetch_or(in_doubt, Ordering::Relaxed);
        lock(&self.slot).last = Some(error);
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A call under way. Any of its callers can poll it.
pub(super) struct Flight<S: Service> {
    work: Mutex<Option<Work>>,
    pub(super) batch: Vec<Arc<Entry<S>>>,
    /// Whether a caller polls it, and was not dropped since.
    pub(super) driven: AtomicBool,
}

impl<S: Service> Flight<S> {
    /// `work` executes the batch.
    pub(super) fn new(
        batch: Vec<Arc<Entry<S>>>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { work: Mutex::new(Some(Box::pin(work))), batch, driven: AtomicBool::new(true) })
    }

    /// Polls the call. Also pending if another caller is polling it at this moment.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut work = match self.work.try_lock() {
            Ok(work) => work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Poll::Pending,
        };
        // Taken out: a future that panics is not polled again.
        let Some(mut future) = work.take() else { return Poll::Ready(()) };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => {
                *work = Some(future);
                Poll::Pending
            }
            Ok(Poll::Ready(())) => Poll::Ready(()),
            Err(_) => {
                let panicked = || Error::new(ErrorKind::Internal, "the backend has panicked");
                self.batch.iter().for_each(|entry| entry.settle(Err(panicked())));
                Poll::Ready(())
            }
        }
    }

    /// Whether it has ended or was dropped.
    pub(super) fn has_ended(&self) -> bool {
        match self.work.try_lock() {
            Ok(work) => work.is_none(),
            // It is being polled.
            Err(_) => false,
        }
    }

    /// Drops the call, and with it the connection that it uses.
    pub(super) fn cancel(&self) {
        let work = lock(&self.work).take();
        if work.is_none() {
            // It has ended. What has no answer is in the queue again.
            return;
        }
        drop(work);
        for entry in &self.batch {
            entry.settle(Err(no_answer(entry.last_error().as_ref())));
        }
    }
}
