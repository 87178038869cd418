//! A caller's side of a request.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::entry::Entry;
use super::flight::Flight;
use super::queues::{Need, Queues};
use super::sender;
use super::service::{Reply, Service, no_answer};
use super::shared::Shared;
use crate::backend::batcher_sync::lock;
use crate::{Error, ErrorKind, Result};

/// A request under way: a future of its answer. See [`Batcher::call`](super::Batcher::call).
#[must_use = "nothing is sent before it is polled, as a rule"]
pub struct Call<S: Service> {
    shared: Arc<Shared<S>>,
    entry: Arc<Entry<S>>,
    state: State,
    /// The sender, if this caller polls it next.
    flight: Option<Arc<Flight>>,
    /// How often it has polled the sender after it was woken.
    polls: u8,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Refused,
    /// It is in the queue, and was not polled yet.
    New,
    Waits,
    Ended,
}

impl<S: Service> Call<S> {
    pub(super) fn new(shared: &Arc<Shared<S>>, key: S::Key, request: S::Request, limit: Duration) -> Self {
        let entry = Entry::new(key, request, shared.clock.now(), limit);
        Self::queued(shared, &mut lock(&shared.queues), entry)
    }

    /// Puts requests into their queues. No sender takes any of them before all are there.
    pub(super) fn new_each(
        shared: &Arc<Shared<S>>,
        requests: impl IntoIterator<Item = (S::Key, S::Request)>,
        limit: Duration,
    ) -> Vec<Self> {
        let now = shared.clock.now();
        let requests = requests.into_iter();
        let entries: Vec<_> = requests.map(|(key, request)| Entry::new(key, request, now, limit)).collect();
        let mut queues = lock(&shared.queues);
        entries.into_iter().map(|entry| Self::queued(shared, &mut queues, entry)).collect()
    }

    fn queued(shared: &Arc<Shared<S>>, queues: &mut Queues<S>, entry: Arc<Entry<S>>) -> Self {
        let is_in = queues.push(&entry, &shared.service, shared.bounds.waiting);
        let state = if is_in { State::New } else { State::Refused };
        Self { shared: Arc::clone(shared), entry, state, flight: None, polls: 0, timer: None }
    }

    /// Makes sure that somebody sends the request.
    fn begin(&mut self, cx: &Context<'_>) {
        self.state = State::Waits;
        let (shared, key) = (&self.shared, &self.entry.key);
        let is_light = shared.service.is_light(key, &self.entry.request) && shared.is_at_home();
        let (need, other) = lock(&shared.queues).needs_sender(&self.entry, shared.bounds.under_way, is_light);
        // The caller of that one may not be polled any more.
        if let Some(sending) = other.and_then(|other| other.take()) {
            sender::spawn(shared, sending);
        }
        match need {
            Need::Nothing => (),
            Need::Task { beside } => sender::start(shared, key, beside),
            Need::Caller(flight) => {
                if let Some(sending) = flight.begin(sender::sending(shared, key), cx.waker()) {
                    sender::spawn(shared, sending);
                }
                self.flight = Some(flight);
            }
        }
    }

    /// Polls the sender again when it has been woken, if this caller has it.
    fn drive(&mut self, cx: &Context<'_>) {
        // Elsewhere its timers would not run.
        let is_at_home = self.shared.is_at_home();
        let is_due = |flight: &mut Arc<Flight>| !is_at_home || flight.is_woken(cx.waker());
        let Some(flight) = self.flight.take_if(is_due) else { return };
        // It would wake itself, and so another thread.
        self.entry.forget_waker();
        self.polls += 1;
        let is_last = self.polls >= S::PARTS;
        let for_task = if is_at_home { flight.go_on(is_last) } else { flight.take() };
        if let Some(sending) = for_task {
            sender::spawn(&self.shared, sending);
        } else if is_at_home && !is_last {
            self.flight = Some(flight);
        }
    }

    /// The caller has its answer, or is dropped. What was not sent is not sent any more.
    fn end(&mut self) {
        if !matches!(self.state, State::New | State::Waits) {
            return;
        }
        self.state = State::Ended;
        self.timer = None;
        self.entry.leave();
        if self.entry.is_queued() {
            lock(&self.shared.queues).withdraw(&self.entry);
        }
        // Its call comes to its end, and others may have come meanwhile.
        if let Some(sending) = self.flight.take().and_then(|flight| flight.take()) {
            sender::spawn(&self.shared, sending);
        }
    }
}

impl<S: Service> Future for Call<S> {
    type Output = Result<Reply<S::Answer>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.state {
            State::New => self.begin(cx),
            State::Waits => self.drive(cx),
            State::Ended => return Poll::Pending,
            State::Refused => {
                self.state = State::Ended;
                return Poll::Ready(Err(Error::new(ErrorKind::Overloaded, "too many requests wait already")));
            }
        }
        let mut answer = self.entry.poll(cx);
        if answer.is_pending() {
            let this = &mut *self;
            let timer = this.timer.get_or_insert_with(|| {
                let (clock, deadline) = (this.shared.clock.clone(), this.entry.deadline);
                Box::pin(async move { clock.sleep_until(deadline).await })
            });
            std::task::ready!(timer.as_mut().poll(cx));
            // The answer may have come in this moment.
            answer = self.entry.poll(cx);
            if answer.is_pending() {
                let Shared { queues, service, .. } = &*self.shared;
                let in_vain = lock(queues).has_waited_in_vain(&self.entry, service);
                answer = Poll::Ready(Err(if in_vain {
                    Error::new(ErrorKind::Overloaded, "requests come faster than the server answers them")
                } else {
                    no_answer(self.entry.last_error().as_ref())
                }));
            }
        }
        self.end();
        answer
    }
}

impl<S: Service> Debug for Call<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.entry.key).finish_non_exhaustive()
    }
}

impl<S: Service> Drop for Call<S> {
    fn drop(&mut self) {
        self.end();
    }
}
