//! The requests that wait and the calls that are under way, for each key.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::entry::Entry;
use super::flight::Flight;
use super::service::{Bounds, Service};
use crate::Moment;

/// A request that has waited for this time is sent before more urgent ones, so that no request waits for
/// ever.
const LONG: Duration = Duration::from_millis(250);

/// A request that was to be answered sooner than this says nothing about the others when it is not.
const SHORT: Duration = Duration::from_secs(1);

/// How many waiting requests are considered for the next batch, so that a long queue, as at a silent server,
/// does not make each call expensive.
const SCAN: usize = 1024;

/// How many keys without waiting requests are kept, since the same keys are used again.
const IDLE_KEPT: usize = 64;

/// The state of all keys.
pub(super) struct Queues<S: Service> {
    queues: HashMap<S::Key, KeyQueue<S>, RandomState>,
    /// How many requests wait, of all keys.
    waiting: usize,
}

struct KeyQueue<S: Service> {
    /// The waiting requests, and some whose callers were [dropped](Self::gone).
    waiting: VecDeque<Arc<Entry<S>>>,
    /// The number of requests whose callers were dropped. They are removed together, since each removal needs
    /// a search.
    gone: usize,
    /// How many senders of this key there are.
    senders: usize,
    /// Whether one of them waits for the end of a pause.
    pauses: bool,
    /// The one that its caller drives.
    flight: Option<Arc<Flight>>,
    /// Notified when a request comes while a sender pauses.
    came: Arc<Notify>,
    /// When the last request was sent that has its answer.
    answered: Option<Moment>,
    /// How long the last call took that was answered.
    took: Duration,
    /// Requests come faster than they are answered. Those that are at most this urgent are refused.
    overloaded: Option<u8>,
}

/// Who sends a request.
pub(super) enum Need {
    /// Those that there are.
    Nothing,
    /// A new task, perhaps beside another sender.
    Task { beside: bool },
    /// The caller.
    Caller(Arc<Flight>),
}

/// What a sender is to do.
pub(super) enum Step<S: Service> {
    /// Send these.
    Send(Vec<Arc<Entry<S>>>),
    /// All requests pause: until this moment, or until another one comes.
    Pause(Moment, Arc<Notify>),
    /// End. It does not count any more.
    End,
}

impl<S: Service> KeyQueue<S> {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            gone: 0,
            senders: 0,
            pauses: false,
            flight: None,
            came: Arc::default(),
            answered: None,
            took: Duration::ZERO,
            overloaded: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.len() == self.gone
    }

    fn live(&self) -> impl Iterator<Item = &Arc<Entry<S>>> {
        self.waiting.iter().filter(|entry| entry.is_queued())
    }

    fn note_gone(&mut self) {
        self.gone += 1;
        if self.gone > 32 && self.gone * 2 > self.waiting.len() {
            self.waiting.retain(|entry| entry.is_queued());
            self.gone = 0;
        }
    }

    /// Removes the request at this position, if its caller was not dropped.
    fn take(&mut self, at: usize) -> Option<Arc<Entry<S>>> {
        let entry = self.waiting.remove(at)?;
        if entry.queued.swap(false, Ordering::Relaxed) {
            return Some(entry);
        }
        self.gone -= 1;
        None
    }

    /// The most urgent request, and those that can share its call. The others keep their order. Requests
    /// whose outcome is unknown share no call with others: see `retry.rs`.
    fn take_batch(&mut self, service: &S, most: usize, now: Moment) -> Vec<Arc<Entry<S>>> {
        let urgency = |entry: &Arc<Entry<S>>| {
            if now.since(entry.since) > LONG { 0 } else { service.urgency(&entry.request) }
        };
        let is_due = |entry: &Arc<Entry<S>>| entry.retry().is_none_or(|retry| now >= retry.not_before);
        // It has waited, and its answer may come too late: the server would work for nothing, while others
        // wait.
        let by = now.after(self.took * 2);
        let is_late =
            |entry: &Arc<Entry<S>>| entry.deadline < by && now.since(entry.since) > entry.limit() / 2;
        let places = self.waiting.iter().enumerate().filter(|(_, entry)| entry.is_queued() && is_due(entry));
        let Some((first, _)) = places.take(SCAN).min_by_key(|(_, entry)| (is_late(entry), urgency(entry)))
        else {
            return Vec::new();
        };
        let mut batch: Vec<_> = self.take(first).into_iter().collect();
        let Some((retry, limit)) =
            batch.first().map(|first| (first.retry(), service.most(&first.request).min(most)))
        else {
            return batch;
        };
        let most = retry.map_or(limit, |retry| retry.most.min(limit));
        let mut rest = Vec::new();
        for _ in 0..SCAN.min(self.waiting.len()) {
            if batch.len() >= most {
                break;
            }
            let fits = |entry: &Arc<Entry<S>>| {
                let is_alike = match (retry, entry.retry()) {
                    (None, None) => true,
                    (Some(first), Some(other)) => now >= other.not_before && other.most == first.most,
                    _ => false,
                };
                is_alike
                    && (!is_late(entry) || is_late(&batch[0]))
                    && service.shares(&batch[0].request, &entry.request)
            };
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

    /// Puts a request into its queue; false if too many wait, or have waited in vain.
    pub(super) fn push(&mut self, entry: &Arc<Entry<S>>, service: &S, most: usize) -> bool {
        if self.waiting >= most {
            return false;
        }
        let queue = match self.queues.get_mut(&entry.key) {
            Some(queue) => queue,
            None => self.queues.entry(entry.key.clone()).or_insert_with(KeyQueue::new),
        };
        let refused = |least: u8| !queue.is_empty() && service.urgency(&entry.request) >= least;
        if queue.overloaded.is_some_and(refused) {
            return false;
        }
        self.waiting += 1;
        entry.queued.store(true, Ordering::Relaxed);
        queue.waiting.push_back(Arc::clone(entry));
        true
    }

    /// The time of a request has passed. Whether it was never sent, although others were that came later or
    /// with it: then requests come faster than they are answered.
    pub(super) fn has_waited_in_vain(&mut self, entry: &Entry<S>, service: &S) -> bool {
        let Some(queue) = self.queues.get_mut(&entry.key) else { return false };
        let others = queue.answered.is_some_and(|sent| sent > entry.since);
        let in_vain = others && !entry.was_sent() && entry.limit() >= SHORT;
        if in_vain {
            queue.overloaded = Some(service.urgency(&entry.request));
        }
        in_vain
    }

    /// Puts a request that was sent into the front of its queue, where it was taken from.
    pub(super) fn put_back(&mut self, entry: &Arc<Entry<S>>) {
        let Some(queue) = self.queues.get_mut(&entry.key) else { return };
        self.waiting += 1;
        entry.queued.store(true, Ordering::Relaxed);
        queue.waiting.push_front(Arc::clone(entry));
    }

    /// Notes that a request which was sent then has its answer now.
    pub(super) fn note_answer(&mut self, key: &S::Key, sent: Moment, now: Moment) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.took = now.since(sent);
            queue.answered = Some(queue.answered.map_or(sent, |last| last.max(sent)));
        }
    }

    /// When the last request of this key was sent that has its answer.
    pub(super) fn answered(&self, key: &S::Key) -> Option<Moment> {
        self.queues.get(key)?.answered
    }

    /// Removes a request that is not under way.
    pub(super) fn withdraw(&mut self, entry: &Arc<Entry<S>>) {
        if !entry.queued.swap(false, Ordering::Relaxed) {
            return;
        }
        self.waiting -= 1;
        if let Some(queue) = self.queues.get_mut(&entry.key) {
            queue.note_gone();
        }
    }

    /// The caller of this request waits from now on. Who sends it, and the sender of another caller that is
    /// to become a task.
    pub(super) fn needs_sender(
        &mut self,
        entry: &Entry<S>,
        under_way: usize,
        is_light: bool,
    ) -> (Need, Option<Arc<Flight>>) {
        let Some(queue) = self.queues.get_mut(&entry.key) else { return (Need::Nothing, None) };
        if !entry.is_queued() {
            // A sender has it, or had it: perhaps that of another caller, which came first and found both in
            // the queue.
            return (Need::Nothing, queue.flight.take());
        }
        if is_light && queue.senders == 0 && queue.waiting.len() - queue.gone == 1 {
            queue.senders = 1;
            let flight = Flight::new();
            queue.flight = Some(Arc::clone(&flight));
            return (Need::Caller(flight), None);
        }
        let other = queue.flight.take();
        if queue.senders < under_way {
            let beside = queue.senders > 0;
            queue.senders += 1;
            return (Need::Task { beside }, other);
        }
        queue.came.notify_one();
        (Need::Nothing, other)
    }

    /// The next step of a sender of this key.
    pub(super) fn step(&mut self, key: &S::Key, service: &S, bounds: Bounds, now: Moment) -> Step<S> {
        let Some(queue) = self.queues.get_mut(key) else { return Step::End };
        let batch = queue.take_batch(service, bounds.batch, now);
        if let Some(first) = batch.first() {
            if now.since(first.since) < first.limit() / 2 {
                queue.overloaded = None;
            }
            self.waiting -= batch.len();
            return Step::Send(batch);
        }
        // One sender is enough to wait for the end of a pause, but not one that sends: its call may
        // take long.
        let pause = queue.live().filter_map(|entry| Some(entry.retry()?.not_before)).min();
        match pause {
            Some(until) if !queue.pauses => {
                queue.pauses = true;
                return Step::Pause(until, Arc::clone(&queue.came));
            }
            // This pause may be the first to end.
            Some(_) => queue.came.notify_one(),
            None => (),
        }
        self.leave(key);
        Step::End
    }

    /// The sender that has waited for the end of a pause goes on, or ends.
    pub(super) fn end_pause(&mut self, key: &S::Key) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.pauses = false;
        }
    }

    /// A sender has ended.
    pub(super) fn leave(&mut self, key: &S::Key) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.senders -= 1;
        if queue.senders == 0 {
            queue.flight = None;
        }
        if queue.senders == 0 && queue.is_empty() && self.queues.len() > IDLE_KEPT {
            self.queues.remove(key);
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.queues.len()
    }
}
