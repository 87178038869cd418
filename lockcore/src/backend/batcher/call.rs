//! A caller's side of a request.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::seq::IndexedRandom;
use tokio::runtime::Handle;

use super::flight::{Entry, Flight};
use super::queues::{Part, Queues};
use super::service::{Reply, Service, no_answer};
use super::shared::Shared;
use super::sync::{MutexGuard, lock};
use super::tries;
use crate::{Error, ErrorKind, Result};

/// How often a waiting caller polls the calls of its key, at first and later. These calls belong to other
/// callers, whose futures may exist without being polled.
const POLL_EVERY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A request under way: a future of its answer. See [`Batcher::call`](super::Batcher::call).
#[must_use = "nothing is sent before it is polled, as a rule"]
pub struct Call<S: Service> {
    inner: Arc<Shared<S>>,
    entry: Arc<Entry<S>>,
    state: State,
    /// The call that this caller polls.
    drives: Option<Arc<Flight<S>>>,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    poll_every: Duration,
    has_yielded: bool,
    /// How often the request was sent when the timer was set.
    tries: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Refused,
    Asking,
    Ended,
}

impl<S: Service> Call<S> {
    pub(super) fn new(inner: &Arc<Shared<S>>, key: S::Key, request: S::Request, limit: Duration) -> Self {
        let inner = Arc::clone(inner);
        let entry = Entry::new(key, request, inner.clock.now(), limit);
        let is_in = lock(&inner.queues).push(&entry, inner.bounds.waiting);
        Self {
            inner,
            entry,
            state: if is_in { State::Asking } else { State::Refused },
            drives: None,
            timer: None,
            poll_every: POLL_EVERY.0,
            has_yielded: false,
            tries: 0,
        }
    }

    /// Takes part in the calls of the key: begins a call, polls one, or waits.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drives.is_none() {
            let inner = &self.inner;
            let rules = (&inner.service, inner.bounds, inner.clock.now());
            let part = lock(&inner.queues).part(&self.entry.key, self.has_yielded, rules, |batch| {
                Flight::new(batch.clone(), tries::run(Arc::clone(inner), batch))
            });
            match part {
                Part::Drive(flight, others_wait) => {
                    self.drives = Some(flight);
                    if others_wait && self.inner.bounds.under_way > 1 {
                        // There may be room for another call.
                        self.wake_next();
                    }
                }
                Part::Yield => {
                    self.has_yielded = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Part::Wait => return Poll::Pending,
            }
        }
        let Some(flight) = &self.drives else { return Poll::Pending };
        std::task::ready!(flight.poll(cx));
        if let Some(flight) = self.drives.take() {
            (self.has_yielded, self.timer) = (false, None);
            self.finish(&flight);
        }
        Poll::Ready(())
    }

    /// A call has ended. Other callers may begin the next.
    fn finish(&self, flight: &Arc<Flight<S>>) {
        let mut queues = lock(&self.inner.queues);
        queues.finish(&self.entry.key, flight);
        self.wake_one_of(queues);
    }

    fn wake_next(&self) {
        self.wake_one_of(lock(&self.inner.queues));
    }

    fn wake_one_of(&self, queues: MutexGuard<'_, Queues<S>>) {
        let next = queues.next(&self.entry.key, self.inner.bounds.under_way);
        drop(queues);
        // The first caller that is still there. It need not finish the call by itself.
        next.iter().any(|entry| !Arc::ptr_eq(entry, &self.entry) && entry.wake());
    }

    /// Polls a call of other callers, in case they do not poll it. The call wakes the caller that polled it
    /// last, so this caller goes on polling it to its end.
    fn poll_for_others(&mut self) {
        let flights = lock(&self.inner.queues).flights(&self.entry.key);
        self.drives = flights.choose(&mut rand::rng()).cloned();
        self.has_yielded = true;
    }

    /// The time left until its deadline.
    fn left(&self) -> Duration {
        self.entry.deadline.since(self.inner.clock.now())
    }

    /// Waits for the deadline, or for the next check.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.left();
        let retry = self.entry.retry();
        let tries = retry.map_or(0, |retry| retry.tries);
        if tries != std::mem::replace(&mut self.tries, tries) {
            // It is in the queue again.
            self.timer = None;
        }
        let pause = retry.map(|retry| retry.not_before.since(self.inner.clock.now()));
        // A caller that polls a call checks, too: another may have polled it since, and the call wakes only
        // the one that polled it last.
        let next = left.min(self.poll_every).min(pause.filter(|left| !left.is_zero()).unwrap_or(left));
        let timer = self.timer.get_or_insert_with(|| Box::pin(self.inner.clock.sleep_for(next)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.timer = None;
        self.poll_every = (self.poll_every * 2).min(POLL_EVERY.1);
        if self.drives.is_none() {
            self.poll_for_others();
        }
        Poll::Ready(())
    }
}

impl<S: Service> Future for Call<S> {
    type Output = Result<Reply<S::Answer>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.state {
            State::Asking => (),
            State::Ended => return Poll::Pending,
            State::Refused => {
                this.state = State::Ended;
                let text = format!("{} requests wait already", this.inner.bounds.waiting);
                return Poll::Ready(Err(Error::new(ErrorKind::Overloaded, text)));
            }
        }
        loop {
            let polled = if this.drives.is_some() { this.entry.take() } else { this.entry.poll(cx) };
            if let Poll::Ready(answer) = polled {
                this.end();
                return Poll::Ready(answer);
            }
            if this.drive(cx).is_ready() {
                continue;
            }
            if let Poll::Ready(answer) = this.entry.poll(cx) {
                this.end();
                return Poll::Ready(answer);
            }
            match this.poll_timer(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if this.left().is_zero() => {
                    // The answer may have come in this moment.
                    let answer = match this.entry.poll(cx) {
                        Poll::Ready(answer) => answer,
                        Poll::Pending => Err(no_answer(this.entry.last_error().as_ref())),
                    };
                    this.end();
                    return Poll::Ready(answer);
                }
                Poll::Ready(()) => (),
            }
        }
    }
}

impl<S: Service> Call<S> {
    /// The caller is dropped, with or without its answer. The call that it has begun goes on.
    fn end(&mut self) {
        if self.state != State::Asking {
            return;
        }
        self.state = State::Ended;
        self.timer = None;
        self.entry.leave();
        let mut queues = lock(&self.inner.queues);
        queues.withdraw(&self.entry);
        // Its own call, or one that another left to this caller, which has not polled it yet.
        let flight = self.drives.take().filter(|flight| !flight.has_ended());
        let Some(flight) = flight.or_else(|| queues.take_left(&self.entry.key)) else {
            return self.wake_one_of(queues);
        };
        flight.driven.store(false, Ordering::Release);
        let next_pollers = queues.next_pollers(&self.entry.key, &flight);
        drop(queues);
        if next_pollers.iter().any(|entry| entry.wake()) {
            return;
        }
        // A caller that has gone on with it meanwhile, and is polling it now, has no waker and was not found.
        if flight.driven.swap(true, Ordering::AcqRel) {
            return;
        }
        // No caller is left. A task waits for the answer of a server that may still answer, so that the
        // connection stays usable. A silent server is not waited for.
        let left = self.left();
        match Handle::try_current() {
            Ok(runtime) if !left.is_zero() => {
                let last = Last { inner: Arc::clone(&self.inner), key: self.entry.key.clone(), flight };
                drop(runtime.spawn(async move {
                    let polled = std::future::poll_fn(|cx| last.flight.poll(cx));
                    last.inner.clock.timeout(left, polled).await;
                }));
            }
            _ => drop(Last { inner: Arc::clone(&self.inner), key: self.entry.key.clone(), flight }),
        }
    }
}

impl<S: Service> Debug for Call<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("key", &self.entry.key).finish_non_exhaustive()
    }
}

impl<S: Service> Drop for Call<S> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A call that no caller polls. Dropping it ends it.
struct Last<S: Service> {
    inner: Arc<Shared<S>>,
    key: S::Key,
    flight: Arc<Flight<S>>,
}

impl<S: Service> Drop for Last<S> {
    fn drop(&mut self) {
        self.flight.cancel();
        let mut queues = lock(&self.inner.queues);
        queues.finish(&self.key, &self.flight);
        let next = queues.next(&self.key, self.inner.bounds.under_way);
        drop(queues);
        next.iter().any(|entry| entry.wake());
    }
}
