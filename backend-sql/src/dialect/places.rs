//! The queue entries of the waiters of one client, on databases where a release grants the lock to a waiter.
//!
//! The database keeps an entry as long as its client gives heartbeats. One sign counts for all entries. The
//! same request asks the database whose turn it is, and all waiters use its answer for a moment. So ten
//! thousand waiters send as many statements as ten.

#![cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::backend::{KEEP_EVERY, Waiter, Waiters, lock, provisional_lease};
use lockwell_core::{Claim, Moment};
use uuid::Uuid;

use crate::ids::AsUuid;
use crate::words::{KnownPlaces, QueueRow, WaiterPoll};

/// For how long other waiters use the answer to a poll.
const SERVES: Duration = Duration::from_millis(50);

/// What a poll says about one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterStatus {
    /// Nothing has changed. Poll again after this time.
    Unchanged(Duration),
    /// The waiter should ask for its lock.
    MayAsk,
    /// The entry is gone: the waiter was granted the lock, or the database has lost its queue. Or the lock's
    /// row does not say that somebody waits: while this client was stopped for longer than a heartbeat lasts,
    /// a release saw no waiter that is alive.
    Missing,
}

/// The answer to a poll, with its times.
#[derive(Debug)]
pub struct PolledQueue {
    sent: Moment,
    answered: Moment,
    due: HashMap<i64, WaiterStatus>,
    left: Option<Duration>,
}

/// The queue entries of one client.
#[derive(Debug, Default)]
pub struct HandOverPlaces {
    known: Mutex<EntryTable>,
}

#[derive(Debug, Default)]
struct EntryTable {
    last_number: i64,
    claims: BTreeMap<i64, Claim>,
    last: Option<Arc<PolledQueue>>,
}

impl HandOverPlaces {
    fn known(&self) -> MutexGuard<'_, EntryTable> {
        lock(&self.known)
    }

    /// Makes an entry for a claim. The database gets it with the next request.
    pub(crate) fn take(self: &Arc<Self>, claim: &Claim, waiters: &Arc<Waiters>) -> HandOverPlace {
        let number = {
            let mut known = self.known();
            known.last_number += 1;
            let number = known.last_number;
            known.claims.insert(number, claim.clone());
            number
        };
        HandOverPlace {
            waiter: waiters.register(claim.name(), number),
            places: Arc::clone(self),
            notified_since: AtomicBool::new(false),
            is_stored: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            asked: Mutex::new(None),
        }
    }

    /// The numbers and owners of all entries.
    pub(crate) fn all(&self) -> Vec<(i64, Uuid)> {
        let known = self.known();
        known.claims.iter().map(|(number, claim)| (*number, claim.owner().as_uuid())).collect()
    }

    /// The claim whose entry has this number.
    pub(crate) fn claim(&self, number: i64) -> Option<Claim> {
        self.known().claims.get(&number).cloned()
    }

    /// Which entries there are, for a look at what the database has.
    pub(crate) fn now(&self) -> KnownPlaces {
        let known = self.known();
        KnownPlaces { last: known.last_number, numbers: known.claims.keys().copied().collect() }
    }

    /// Stores the answer to a poll.
    pub(crate) fn note(&self, poll: WaiterPoll, sent: Moment) -> Arc<PolledQueue> {
        let missing = poll.missing.into_iter().map(|number| (number, WaiterStatus::Missing));
        let due: HashMap<i64, WaiterStatus> =
            missing.chain(poll.turns.into_iter().map(|number| (number, WaiterStatus::MayAsk))).collect();
        // Those who wait for a lease that has ended are among these. It stays where a transaction has locked
        // its row, and the others need not look for its end again and again.
        let left = poll.left.filter(|left| !left.is_zero() || due.is_empty());
        let polled = Arc::new(PolledQueue { sent, answered: Moment::now(), due, left });
        self.known().last = Some(Arc::clone(&polled));
        polled
    }

    /// The answer to the last poll, if it is recent, and was sent after `asked`.
    pub(crate) fn last(&self, asked: Moment) -> Option<Arc<PolledQueue>> {
        let last = self.known().last.clone()?;
        (last.sent > asked && !last.answered.after(SERVES).has_passed()).then_some(last)
    }

    /// The time until the next heartbeat is due.
    pub(crate) fn next_heartbeat(&self) -> Duration {
        let last = self.known().last.as_ref().map(|last| last.sent.after(KEEP_EVERY).remaining());
        // A poll that is late is sent at once, and the others use its answer.
        last.filter(|left| !left.is_zero()).unwrap_or(KEEP_EVERY)
    }
}

impl PolledQueue {
    pub(crate) fn status_of(&self, number: i64) -> WaiterStatus {
        if let Some(due) = self.due.get(&number) {
            return *due;
        }
        let next = self.sent.after(KEEP_EVERY).remaining();
        let lease = self.left.map(|left| self.answered.after(left).remaining() + Duration::from_millis(1));
        WaiterStatus::Unchanged(lease.map_or(next, |lease| lease.min(next)).max(Duration::from_millis(1)))
    }
}

/// One entry, from the moment when the claim enters the queue until the entry is dropped.
#[derive(Debug)]
pub(crate) struct HandOverPlace {
    pub(crate) waiter: Waiter,
    places: Arc<HandOverPlaces>,
    /// Whether the waiter was notified since it asked last.
    notified_since: AtomicBool,
    is_stored: AtomicBool,
    /// Whether a transaction had locked the lock's row when the waiter asked last.
    is_blocked: AtomicBool,
    /// When the waiter asked last.
    asked: Mutex<Option<Moment>>,
}

impl HandOverPlace {
    /// The row for the database. `receives`: whether notifications arrive at this process, and so a grant.
    pub(crate) fn row(&self, claim: &Claim, receives: bool) -> QueueRow {
        let lease = receives.then(|| provisional_lease(claim)).flatten();
        QueueRow { number: self.waiter.ticket(), lease, is_stored: self.is_stored.load(Ordering::Relaxed) }
    }

    pub(crate) async fn notified(&self) {
        self.waiter.notified().await;
        self.notified_since.store(true, Ordering::Relaxed);
    }

    /// When the waiter asked last, if it was not notified since. A poll then says whether to ask again.
    pub(crate) fn last_asked_unnotified(&self) -> Option<Moment> {
        let notified_since = self.notified_since.swap(false, Ordering::Relaxed);
        let asked = *lock(&self.asked);
        asked.filter(|_| !notified_since && !self.is_blocked())
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_missing(&self) {
        self.is_stored.store(false, Ordering::Relaxed);
    }

    /// Notes that the waiter asks now.
    pub(crate) fn note_asked(&self) {
        *lock(&self.asked) = Some(Moment::now());
    }

    /// Notes whether the database has stored the entry, and whether a transaction had locked the lock's row.
    pub(crate) fn note_answer(&self, is_stored: bool, is_blocked: bool) {
        self.is_stored.store(is_stored, Ordering::Relaxed);
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
    }
}

impl Drop for HandOverPlace {
    fn drop(&mut self) {
        self.places.known().claims.remove(&self.waiter.ticket());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_has_ended_and_stays_concerns_only_those_who_wait_for_it() {
        let places = HandOverPlaces::default();
        let others_wait = |turns: Vec<i64>, left: Duration| {
            let poll = WaiterPoll { turns, left: Some(left), ..WaiterPoll::default() };
            // The next heartbeat is far away.
            let polled = places.note(poll, Moment::now().after(Duration::from_mins(1)));
            match polled.status_of(2) {
                WaiterStatus::Unchanged(next) => next,
                other => panic!("{other:?}"),
            }
        };
        assert!(others_wait(vec![1], Duration::ZERO) > Duration::from_secs(30));
        assert!(others_wait(vec![1], Duration::from_secs(5)) < Duration::from_secs(6));
        // It has ended just now: the next answer says for whom.
        assert_eq!(others_wait(Vec::new(), Duration::ZERO), Duration::from_millis(1));
    }
}
