//! A call under way: its requests, and the future that executes it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::retry::{Retry, pause};
use super::sync::{AtomicBool, Mutex, lock};
use super::{Attempt, Inner, Outcome, Reply, Service, no_answer};
use crate::backend::Backoff;
use crate::{Error, ErrorKind, Moment, Result};

/// How often a request that collided with others is tried again at most. A deadlock that occurs twenty times counts as
/// a failure.
const TRIES: u32 = 20;
/// The first and the longest pause between two tries of a call.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(256));

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
    retry: std::sync::Mutex<Option<Retry>>,
    slot: Mutex<Slot<S::Answer>>,
}

/// The place of the answer for the caller.
struct Slot<T> {
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
        let slot = Slot { answer: None, settled: false, last: None, waker: None, left: false };
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

    /// The answer, if there is one. Otherwise a later answer does not wake the caller. For a caller that polls its call
    /// itself: it would wake itself, and a runtime would poll it once more, on another thread.
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

    fn note(&self, error: Error, in_doubt: bool) {
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
    pub(super) fn new(inner: &Arc<Inner<S>>, batch: Vec<Arc<Entry<S>>>) -> Arc<Self> {
        let work = run(Arc::clone(inner), batch.clone());
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

/// Tries a batch until all its requests have answers, or no caller waits for them any more.
async fn run<S: Service>(inner: Arc<Inner<S>>, batch: Vec<Arc<Entry<S>>>) {
    let mut parts = run_part(&inner, batch).await;
    while let Some(part) = parts.pop() {
        parts.extend(run_part(&inner, part).await);
    }
}

/// The same for a batch, or for a part of a batch that is tried separately. Returns parts that must be tried
/// separately.
async fn run_part<S: Service>(inner: &Inner<S>, mut open: Vec<Arc<Entry<S>>>) -> Vec<Vec<Arc<Entry<S>>>> {
    let service = &inner.service;
    let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
    let (began, mut tries) = (inner.clock.now(), 0);
    loop {
        let Some(first) = open.first() else { return Vec::new() };
        let key = first.key.clone();
        let began = open.iter().filter_map(|entry| Some(entry.retry()?.began)).min().unwrap_or(began);
        let until = open.iter().map(|entry| entry.deadline).max().unwrap_or(Moment::NEVER);
        let attempt = Attempt { began, until };
        let prepared = service.prepare(&key, attempt).await;
        // Nothing is sent, or sent again, for a caller that has left: its release may be on its way already.
        open.retain(|entry| is_wanted(inner, entry));
        match prepared {
            Ok(()) if open.is_empty() => return Vec::new(),
            Ok(()) => (),
            Err(error) if error.is_retryable() => {
                for entry in &open {
                    entry.note(error.duplicate(), false);
                }
                backoff.pause_by(&inner.clock).await;
                continue;
            }
            Err(error) => {
                for entry in &open {
                    entry.settle(Err(error.duplicate()));
                }
                return Vec::new();
            }
        }
        let requests: Vec<_> = open.iter().map(|entry| &entry.request).collect();
        let sent = inner.clock.now();
        let outcomes = service.call(&key, &requests, attempt).await;
        tries += 1;
        let size = open.len();
        if outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Unknown(_))) {
            lock(&inner.queues).note_answer(&key, sent);
        }
        let mut again = Vec::new();
        let mut unknown = Vec::new();
        let mut blocked = Vec::new();
        let missing =
            || Outcome::Failed(Error::new(ErrorKind::Internal, "the backend has not answered to all"));
        let outcomes = outcomes.into_iter().chain(std::iter::repeat_with(missing));
        for (entry, outcome) in open.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Answered(answer) => entry.settle(Ok(answer)),
                Outcome::Failed(error) => entry.settle(Err(error)),
                Outcome::Again(error) if tries >= TRIES => entry.settle(Err(error)),
                Outcome::Again(error) | Outcome::Unavailable(error) => {
                    entry.note(error, false);
                    again.push(entry);
                }
                Outcome::Unknown(error) => {
                    entry.note(error, true);
                    service.note_in_doubt(&entry.request);
                    unknown.push(entry);
                }
                Outcome::Blocked => blocked.push(entry),
            }
        }
        put_back(inner, &key, &unknown, sent, size);
        if !blocked.is_empty() {
            let mut parts = apart(service, blocked);
            parts.extend((!again.is_empty()).then_some(again));
            return parts;
        }
        if again.is_empty() {
            return Vec::new();
        }
        open = again;
        backoff.pause_by(&inner.clock).await;
    }
}

/// Puts requests whose outcome is unknown into the queue again. They were sent then in a call of this size.
fn put_back<S: Service>(
    inner: &Inner<S>,
    key: &S::Key,
    entries: &[Arc<Entry<S>>],
    sent: Moment,
    size: usize,
) {
    let tries = entries.iter().filter_map(|entry| Some(entry.retry()?.tries)).max().unwrap_or(0);
    // One pause for all of them, so that they share calls again.
    let not_before = inner.clock.now().after(pause(tries, rand::random()));
    {
        let mut queues = lock(&inner.queues);
        let answered = queues.answered(key);
        // The last one first, since each goes to the front.
        for entry in entries.iter().rev() {
            let next = Retry::after(entry.retry(), sent, size, answered, not_before);
            *crate::system::lock(&entry.retry) = Some(next);
            queues.put_back(entry);
        }
    }
    for entry in entries {
        // So that it knows when to go on.
        entry.wake();
    }
}

fn is_wanted<S: Service>(inner: &Inner<S>, entry: &Entry<S>) -> bool {
    if !inner.service.is_wanted(&entry.request) {
        // What was sent before may have been carried out.
        let kind = if entry.is_in_doubt() { ErrorKind::UnknownOutcome } else { ErrorKind::Cancelled };
        entry.settle(Err(Error::new(kind, "the claim was cancelled before its request was sent")));
        return false;
    }
    !inner.clock.has_passed(entry.deadline) && !entry.has_left()
}

/// Groups the requests that want the same resource; the first to try comes last.
fn apart<S: Service>(service: &S, entries: Vec<Arc<Entry<S>>>) -> Vec<Vec<Arc<Entry<S>>>> {
    let mut parts: Vec<Vec<Arc<Entry<S>>>> = Vec::new();
    for entry in entries {
        let same = |part: &&mut Vec<Arc<Entry<S>>>| service.is_about_one(&part[0].request, &entry.request);
        match parts.iter_mut().find(same) {
            Some(part) => part.push(entry),
            None => parts.push(vec![entry]),
        }
    }
    parts.reverse();
    parts
}
