//! The places of the waiters of one client, where releases hand locks over.
//!
//! A place lives as long as its client gives signs of life: one for all of them. The same request asks the database whose
//! turn it is, and its answer serves all waiters for a moment. So ten and ten thousand waiters cost as many statements.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::backend::{KEEP_EVERY, Waiter, Waiters};
use lockcore::{Claim, Moment};
use uuid::Uuid;

/// The longest provisional lease: that of a waiter to whom a release has granted the lock. One that is gone costs the
/// others so much. It counts from the client's last sign of life, so it is longer than the time between two of them.
const PROVISIONAL: Duration = Duration::from_secs(3);

/// For how long the answer to one look serves others.
const SERVES: Duration = Duration::from_millis(50);

/// A place, as the database is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The client's own number for it.
    pub number: i64,
    /// The length of the lease with which a release may grant the lock. `None`: it only wakes.
    pub lease: Option<Duration>,
    /// Whether the database has it, as far as is known.
    pub is_taken: bool,
}

/// What a database answers to a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its clock, in microseconds.
    pub clock: u64,
    /// Those who have no place any more.
    pub missing: Vec<i64>,
    /// Those who have one, and should ask.
    pub turns: Vec<i64>,
    /// The time until the next lease ends of the locks that are waited for, if one does.
    pub left: Option<Duration>,
}

/// What somebody should know who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing has changed; look again after this time.
    Nothing(Duration),
    /// It is to ask.
    Asks,
    /// Its place is gone: it has been granted the lock, or the database has forgotten its queue.
    Missing,
}

/// A look that has been answered.
#[derive(Debug)]
pub(crate) struct Looked {
    sent: Moment,
    answered: Moment,
    due: HashMap<i64, Due>,
    left: Option<Duration>,
}

/// The places of one client.
#[derive(Debug, Default)]
pub(crate) struct Places {
    last_number: AtomicI64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    owners: BTreeMap<i64, Uuid>,
    last: Option<Arc<Looked>>,
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a claim; the database has yet to be told.
    pub(crate) fn take(self: &Arc<Self>, claim: &Claim, waiters: &Arc<Waiters>) -> Place {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        self.known().owners.insert(number, claim.owner().as_uuid());
        Place {
            waiter: waiters.register(claim.name(), number),
            places: Arc::clone(self),
            called: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            asked: Mutex::new(None),
        }
    }

    /// All of them, with their owners.
    pub(crate) fn all(&self) -> Vec<(i64, Uuid)> {
        self.known().owners.iter().map(|(number, owner)| (*number, *owner)).collect()
    }

    /// Notes what a look has found.
    pub(crate) fn note(&self, look: Look, sent: Moment) -> Arc<Looked> {
        let missing = look.missing.into_iter().map(|number| (number, Due::Missing));
        let due = missing.chain(look.turns.into_iter().map(|number| (number, Due::Asks))).collect();
        let looked = Arc::new(Looked { sent, answered: Moment::now(), due, left: look.left });
        self.known().last = Some(Arc::clone(&looked));
        looked
    }

    /// The last look, if it serves one that has asked at this time.
    pub(crate) fn last(&self, asked: Moment) -> Option<Arc<Looked>> {
        let last = self.known().last.clone()?;
        (last.sent > asked && !last.answered.after(SERVES).has_passed()).then_some(last)
    }

    /// The time until the next sign of life is due.
    pub(crate) fn next_sign(&self) -> Duration {
        let last = self.known().last.as_ref().map(|last| last.sent.after(KEEP_EVERY).remaining());
        // One who is late looks at once, and the others with it.
        last.filter(|left| !left.is_zero()).unwrap_or(KEEP_EVERY)
    }
}

impl Looked {
    pub(crate) fn due(&self, number: i64) -> Due {
        if let Some(due) = self.due.get(&number) {
            return *due;
        }
        let next = self.sent.after(KEEP_EVERY).remaining();
        let lease = self.left.map(|left| self.answered.after(left).remaining() + Duration::from_millis(1));
        Due::Nothing(lease.map_or(next, |lease| lease.min(next)).max(Duration::from_millis(1)))
    }
}

/// One place, from the claim's entering the queue until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) waiter: Waiter,
    places: Arc<Places>,
    /// It was notified since it asked last.
    called: AtomicBool,
    is_taken: AtomicBool,
    /// A transaction had locked the lock's row when it asked last.
    is_blocked: AtomicBool,
    /// When it asked last.
    asked: Mutex<Option<Moment>>,
}

impl Place {
    /// What the database is told of it. `hears`: whether a grant would reach it.
    pub(crate) fn seat(&self, claim: &Claim, hears: bool) -> Seat {
        // With a lock delay, a short lease would have no validity.
        let lease = (hears && claim.lock_delay().is_zero()).then(|| claim.ttl().min(PROVISIONAL));
        Seat { number: self.waiter.ticket(), lease, is_taken: self.is_taken.load(Ordering::Relaxed) }
    }

    pub(crate) async fn notified(&self) {
        self.waiter.notified().await;
        self.called.store(true, Ordering::Relaxed);
    }

    /// When it asked last, if it has not been notified since: then a look tells whether to ask again.
    pub(crate) fn looks_since(&self) -> Option<Moment> {
        let called = self.called.swap(false, Ordering::Relaxed);
        let asked = *self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.filter(|_| !called && !self.is_blocked())
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_missing(&self) {
        self.is_taken.store(false, Ordering::Relaxed);
    }

    /// Notes that it asks now.
    pub(crate) fn note_asked(&self) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Moment::now());
    }

    /// Notes whether the answer says that it has its place, and whether it was kept from asking.
    pub(crate) fn note_answer(&self, is_taken: bool, is_blocked: bool) {
        self.is_taken.store(is_taken, Ordering::Relaxed);
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.known().owners.remove(&self.waiter.ticket());
    }
}
