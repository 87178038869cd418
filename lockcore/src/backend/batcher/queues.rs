//! What waits and what is under way, for each key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::flight::{Entry, Flight};
use super::{Inner, Service};
use crate::Moment;

/// A request that has waited for so long goes before those that are more urgent: nobody waits for ever.
const LONG: Duration = Duration::from_millis(250);

/// How many keys are kept while nothing waits for them: the same ones come again and again.
const IDLE_KEPT: usize = 64;

/// The state of all keys.
pub(super) struct Queues<S: Service> {
    queues: HashMap<S::Key, KeyQueue<S>>,
    /// How many requests wait, of all keys.
    waiting: usize,
}

struct KeyQueue<S: Service> {
    waiting: VecDeque<Arc<Entry<S>>>,
    flights: Vec<Arc<Flight<S>>>,
    /// The callers of the last batch have just been answered, and often ask again at once. The next call begins when
    /// they have had their turn, so that they meet in it.
    settling: bool,
}

/// What a caller is to do.
pub(super) enum Part<S: Service> {
    /// Poll this call.
    Drive(Arc<Flight<S>>),
    /// Let others run first, and look again.
    Yield,
    /// Wait for the answer.
    Wait,
}

impl<S: Service> Queues<S> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::new(), waiting: 0 }
    }

    /// Puts a request into its queue; false if too many wait.
    pub(super) fn push(&mut self, entry: &Arc<Entry<S>>, most: usize) -> bool {
        if self.waiting >= most {
            return false;
        }
        self.waiting += 1;
        entry.queued.store(true, Ordering::Relaxed);
        let new = || KeyQueue { waiting: VecDeque::new(), flights: Vec::new(), settling: false };
        let queue = match self.queues.get_mut(&entry.key) {
            Some(queue) => queue,
            None => self.queues.entry(entry.key.clone()).or_insert_with(new),
        };
        queue.waiting.push_back(Arc::clone(entry));
        true
    }

    /// Takes a request out that was not sent.
    pub(super) fn withdraw(&mut self, entry: &Arc<Entry<S>>) {
        if !entry.queued.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(queue) = self.queues.get_mut(&entry.key) else { return };
        if let Some(at) = queue.waiting.iter().position(|one| Arc::ptr_eq(one, entry)) {
            queue.waiting.remove(at);
            self.waiting -= 1;
        }
    }

    /// A call that its caller has left.
    pub(super) fn take_left(&mut self, key: &S::Key) -> Option<Arc<Flight<S>>> {
        let flights = &self.queues.get(key)?.flights;
        flights.iter().find(|flight| !flight.driven.swap(true, Ordering::AcqRel)).cloned()
    }

    /// What a caller with this key is to do, which polls no call yet.
    pub(super) fn part(&mut self, inner: &Arc<Inner<S>>, key: &S::Key, has_yielded: bool) -> Part<S> {
        // A call that its caller has left comes first: others wait for it.
        if let Some(flight) = self.take_left(key) {
            return Part::Drive(flight);
        }
        let Some(queue) = self.queues.get_mut(key) else { return Part::Wait };
        if queue.waiting.is_empty() || queue.flights.len() >= inner.bounds.under_way {
            return Part::Wait;
        }
        if queue.settling && !has_yielded {
            return Part::Yield;
        }
        queue.settling = false;
        let batch = take_batch(&mut queue.waiting, inner);
        self.waiting -= batch.len();
        let flight = Flight::new(inner, batch);
        queue.flights.push(Arc::clone(&flight));
        Part::Drive(flight)
    }

    /// The calls of a key that are under way.
    pub(super) fn flights(&self, key: &S::Key) -> Vec<Arc<Flight<S>>> {
        self.queues.get(key).map_or_else(Vec::new, |queue| queue.flights.clone())
    }

    /// Notes that a call has ended. Whoever is to begin the next one must be [woken](Self::next).
    pub(super) fn finish(&mut self, key: &S::Key, flight: &Arc<Flight<S>>) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.flights.retain(|one| !Arc::ptr_eq(one, flight));
        queue.settling = flight.batch.len() > 1;
        if queue.flights.is_empty() && queue.waiting.is_empty() && self.queues.len() > IDLE_KEPT {
            self.queues.remove(key);
        }
    }

    /// Those who could begin the next call, if there is something to send and nothing in the way.
    pub(super) fn next(&self, key: &S::Key, under_way: usize) -> Vec<Arc<Entry<S>>> {
        match self.queues.get(key) {
            Some(queue) if queue.flights.len() < under_way => queue.waiting.iter().take(8).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Everybody who could go on with a call that its caller has left: those of its batch, and those who wait behind it.
    pub(super) fn heirs(&self, key: &S::Key, flight: &Flight<S>) -> Vec<Arc<Entry<S>>> {
        let waiting = self.queues.get(key).into_iter().flat_map(|queue| &queue.waiting);
        flight.batch.iter().chain(waiting).cloned().collect()
    }
}

/// The most urgent of those who wait, and all that can share its call. What is left keeps its order.
fn take_batch<S: Service>(waiting: &mut VecDeque<Arc<Entry<S>>>, inner: &Inner<S>) -> Vec<Arc<Entry<S>>> {
    let service = &inner.service;
    let now = Moment::now();
    let urgency = |at: &usize| {
        let entry = &waiting[*at];
        if now.since(entry.since) > LONG { 0 } else { service.urgency(&entry.request) }
    };
    let first = (0..waiting.len()).min_by_key(urgency).unwrap_or_default();
    let Some(first) = waiting.remove(first) else { return Vec::new() };
    first.queued.store(false, Ordering::Relaxed);
    let mut batch = vec![first];
    if waiting.is_empty() {
        return batch;
    }
    let mut rest = VecDeque::with_capacity(waiting.len());
    for entry in waiting.drain(..) {
        let fits = batch.len() < inner.bounds.batch && service.shares(&batch[0].request, &entry.request);
        if fits {
            entry.queued.store(false, Ordering::Relaxed);
            batch.push(entry);
        } else {
            rest.push_back(entry);
        }
    }
    *waiting = rest;
    batch
}
