//! What waits and what is under way, for each key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::flight::{Entry, Flight};
use super::{Inner, Service};
use crate::Moment;

/// A request that has waited for so long goes before those that are more urgent: nobody waits for ever.
const LONG: Duration = Duration::from_millis(250);

/// How many of those who wait are looked at for the next batch: a queue that a silent server has made long must not cost
/// more for each call.
const SCAN: usize = 1024;

/// How many keys are kept while nothing waits for them: the same ones come again and again.
const IDLE_KEPT: usize = 64;

/// The state of all keys.
pub(super) struct Queues<S: Service> {
    queues: HashMap<S::Key, KeyQueue<S>, RandomState>,
    /// How many requests wait, of all keys.
    waiting: usize,
}

struct KeyQueue<S: Service> {
    /// Those who wait, and some who have [gone](Self::gone).
    waiting: VecDeque<Arc<Entry<S>>>,
    /// How many of them have gone. They are taken out together, since each would have to be searched for.
    gone: usize,
    flights: Vec<Arc<Flight<S>>>,
    /// The callers of the last batch have just been answered, and often ask again at once. The next call begins when
    /// they have had their turn, so that they meet in it.
    settling: bool,
}

/// What a caller is to do.
pub(super) enum Part<S: Service> {
    /// Poll this call. Whether others wait, who may begin another.
    Drive(Arc<Flight<S>>, bool),
    /// Let others run first, and look again.
    Yield,
    /// Wait for the answer.
    Wait,
}

impl<S: Service> KeyQueue<S> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), gone: 0, flights: Vec::new(), settling: false }
    }

    fn is_empty(&self) -> bool {
        self.waiting.len() == self.gone
    }

    fn live(&self) -> impl Iterator<Item = &Arc<Entry<S>>> {
        self.waiting.iter().filter(|entry| entry.is_queued())
    }

    fn take_left(&self) -> Option<Arc<Flight<S>>> {
        self.flights.iter().find(|flight| !flight.driven.swap(true, Ordering::AcqRel)).cloned()
    }

    fn note_gone(&mut self) {
        self.gone += 1;
        if self.gone > 32 && self.gone * 2 > self.waiting.len() {
            self.waiting.retain(|entry| entry.is_queued());
            self.gone = 0;
        }
    }

    /// Takes out the one that stands at this place, if it has not gone.
    fn take(&mut self, at: usize) -> Option<Arc<Entry<S>>> {
        let entry = self.waiting.remove(at)?;
        if entry.queued.swap(false, Ordering::Relaxed) {
            return Some(entry);
        }
        self.gone -= 1;
        None
    }

    /// The most urgent of those who wait, and those that can share its call. What is left keeps its order.
    fn take_batch(&mut self, inner: &Inner<S>) -> Vec<Arc<Entry<S>>> {
        let service = &inner.service;
        let now = Moment::now();
        let urgency = |entry: &Arc<Entry<S>>| {
            if now.since(entry.since) > LONG { 0 } else { service.urgency(&entry.request) }
        };
        let places = self.waiting.iter().enumerate().filter(|(_, entry)| entry.is_queued());
        let Some((first, _)) = places.take(SCAN).min_by_key(|(_, entry)| urgency(entry)) else {
            return Vec::new();
        };
        let mut batch: Vec<_> = self.take(first).into_iter().collect();
        let mut rest = Vec::new();
        for _ in 0..SCAN.min(self.waiting.len()) {
            if batch.len() >= inner.bounds.batch {
                break;
            }
            let fits = |entry: &Arc<Entry<S>>| service.shares(&batch[0].request, &entry.request);
            match self.waiting.front() {
                Some(entry) if entry.is_queued() && !fits(entry) => rest.extend(self.waiting.pop_front()),
                _ => batch.extend(self.take(0)),
            }
        }
        rest.into_iter().rev().for_each(|entry| self.waiting.push_front(entry));
        batch
    }
}

impl<S: Service> Queues<S> {
    pub(super) fn new() -> Self {
        Self { queues: HashMap::default(), waiting: 0 }
    }

    /// Puts a request into its queue; false if too many wait.
    pub(super) fn push(&mut self, entry: &Arc<Entry<S>>, most: usize) -> bool {
        if self.waiting >= most {
            return false;
        }
        self.waiting += 1;
        entry.queued.store(true, Ordering::Relaxed);
        let queue = match self.queues.get_mut(&entry.key) {
            Some(queue) => queue,
            None => self.queues.entry(entry.key.clone()).or_insert_with(KeyQueue::new),
        };
        queue.waiting.push_back(Arc::clone(entry));
        true
    }

    /// Takes a request out that was not sent.
    pub(super) fn withdraw(&mut self, entry: &Arc<Entry<S>>) {
        if !entry.queued.swap(false, Ordering::Relaxed) {
            return;
        }
        self.waiting -= 1;
        if let Some(queue) = self.queues.get_mut(&entry.key) {
            queue.note_gone();
        }
    }

    /// A call that its caller has left.
    pub(super) fn take_left(&mut self, key: &S::Key) -> Option<Arc<Flight<S>>> {
        self.queues.get(key)?.take_left()
    }

    /// What a caller with this key is to do, which polls no call yet.
    pub(super) fn part(&mut self, inner: &Arc<Inner<S>>, key: &S::Key, has_yielded: bool) -> Part<S> {
        let Some(queue) = self.queues.get_mut(key) else { return Part::Wait };
        // A call that its caller has left comes first: others wait for it.
        if let Some(flight) = queue.take_left() {
            return Part::Drive(flight, !queue.is_empty());
        }
        if queue.is_empty() || queue.flights.len() >= inner.bounds.under_way {
            return Part::Wait;
        }
        if queue.settling && !has_yielded {
            return Part::Yield;
        }
        queue.settling = false;
        let batch = queue.take_batch(inner);
        self.waiting -= batch.len();
        let flight = Flight::new(inner, batch);
        queue.flights.push(Arc::clone(&flight));
        Part::Drive(flight, !queue.is_empty())
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
        if queue.flights.is_empty() && queue.is_empty() && self.queues.len() > IDLE_KEPT {
            self.queues.remove(key);
        }
    }

    /// Those who could begin the next call, if there is something to send and nothing in the way.
    pub(super) fn next(&self, key: &S::Key, under_way: usize) -> Vec<Arc<Entry<S>>> {
        match self.queues.get(key) {
            Some(queue) if queue.flights.len() < under_way => queue.live().take(8).cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Those who could go on with a call that its caller has left: those of its batch, and some who wait behind it.
    pub(super) fn heirs(&self, key: &S::Key, flight: &Flight<S>) -> Vec<Arc<Entry<S>>> {
        let waiting = self.queues.get(key).into_iter().flat_map(|queue| queue.live().take(64));
        flight.batch.iter().chain(waiting).cloned().collect()
    }
}
