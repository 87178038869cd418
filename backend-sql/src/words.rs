//! What the client and the databases say to each other: requests about locks and their answers.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

pub(crate) use lockwell_core::backend::Notification;
use lockwell_core::backend::{Waiters, lock};
use lockwell_core::{Claim, FencingToken, Holder, LockName, LockStatus, Mode, WaitingClaim};
use uuid::Uuid;

/// How many names a portion has.
pub(crate) const PORTION: i64 = 500;

/// The most claims that join groups, or take locks with their places, in one message. On PostgreSQL the rows
/// of their locks stay locked until all of them are done.
pub(crate) const JOINS: usize = 64;

/// The ticket of a claim that is not in the queue. It comes after all others.
pub(crate) const NO_TICKET: i64 = i64::MAX;

/// Stands for a ticket where the head of the queue is not the only waiter that can be next.
pub(crate) const SEVERAL: i64 = -1;

/// A request to take a lock.
#[derive(Clone, Debug)]
pub struct TakeRequest {
    pub claim: Claim,
    pub ticket: i64,
    /// The token of the grant that a release says to have made for the claim.
    pub announced: Option<FencingToken>,
}

impl TakeRequest {
    /// The request of a claim with this place, to which nothing was announced.
    pub(crate) fn new(claim: &Claim, ticket: i64) -> Self {
        Self { claim: claim.clone(), ticket, announced: None }
    }
}

/// A claim with its place in the queue, on databases where a release grants the lock to a waiter.
#[derive(Clone, Debug)]
pub struct QueuedClaim {
    pub claim: Claim,
    pub row: QueueRow,
}

/// Which table has the row of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The lock's own row names the holder.
    Alone,
    /// The holder is a member of a group.
    Together,
}

impl Hold {
    pub(crate) fn of(claim: &Claim) -> Self {
        if claim.mode() == Mode::Exclusive { Self::Alone } else { Self::Together }
    }
}

/// The answer to a request to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquire {
    Granted(FencingToken),
    /// A release has granted the lock to the claim, and this is left of its provisional lease.
    HandedOver(FencingToken, Duration),
    /// The claim is already a member of the group, with this token.
    Member(FencingToken),
    /// Another claim holds the lock, or is ahead in the queue. The time until the lease of a holder ends, and
    /// the mode in which the lock is held or, if it is free, the first waiter wants it, if they are known.
    Busy(Option<Duration>, Option<Mode>),
    /// A group holds the lock, and the lease of one of its members has ended.
    Stale,
    /// A transaction has locked a row. A claim that was sent in a batch may have been granted nevertheless.
    Blocked,
    /// The server may have forgotten grants, and grants nothing for this time.
    Closed(Duration),
}

impl TryAcquire {
    /// A refusal whose reason is not known.
    pub(crate) const REFUSED: Self = Self::Busy(None, None);

    /// A refusal. `in_use` is the mode of [`Busy`](Self::Busy). `left` is the time in microseconds until the
    /// first lease of the holders ends.
    pub(crate) fn refused(in_use: Option<i64>, left: Option<i64>) -> Self {
        // A holder whose lease has ended must not refuse others.
        if left.is_some_and(|left| left <= 0) {
            return Self::Stale;
        }
        Self::Busy(left.map(span), in_use.and_then(Mode::from_code))
    }
}

/// The result of releasing a lock or of leaving the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub released: bool,
    /// It may have been done earlier: by a try whose answer was lost, or by a statement that did not say
    /// which locks it freed.
    pub in_doubt: bool,
    /// The lock is still held: a transaction has locked its row.
    pub blocked: bool,
    /// The tickets of the waiters of this process whose turn it is now.
    pub next: Vec<i64>,
    /// The notification for a waiter of this process, with what the release has granted to it.
    pub notification: Option<Notification>,
}

impl Freed {
    pub(crate) fn new(released: bool, next: Vec<i64>) -> Self {
        Self { released, next, ..Self::default() }
    }

    /// Delivers to the waiters of this process what the answer to a release says about them.
    pub(crate) fn notify_next(self, waiters: &Waiters) {
        let next = self.next.into_iter().map(Notification::to_recheck);
        next.chain(self.notification).for_each(|notification| waiters.deliver(notification));
    }
}

/// The answer to the renewal of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    Extended,
    /// A transaction has locked the row, for example by `verify_in`: ask again.
    Blocked,
    Lost,
}

/// What the tries of one forced release have seen: the highest token of the holders, and how many these were.
/// A try whose answer was lost may have freed them, and the next one must not free whoever came after them.
#[derive(Debug, Default)]
pub struct Forced(Mutex<Option<(i64, usize)>>);

impl Forced {
    /// Notes whom a try is about to free, before it commits.
    pub(crate) fn note(&self, token: i64, holders: usize) {
        *lock(&self.0) = Some((token, holders));
    }

    fn seen(&self) -> Option<(i64, usize)> {
        *lock(&self.0)
    }

    /// The highest token of a holder that may be freed.
    pub(crate) fn up_to(&self) -> i64 {
        self.seen().map_or(i64::MAX, |(token, _)| token)
    }

    /// How many holders an earlier try has seen.
    pub(crate) fn holders(&self) -> Option<usize> {
        self.seen().map(|(_, holders)| holders)
    }
}

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) fn token(number: i64) -> FencingToken {
    FencingToken::new(number.cast_unsigned())
}

/// How many tokens a claim reserves.
pub(crate) fn block(claim: &Claim) -> i64 {
    i64::from(claim.tokens().get())
}

/// A holder in the tables: token, label, mode, the time left of its lease, and the time since the grant, in
/// microseconds.
pub(crate) type HolderRow = (i64, String, i64, i64, i64);

/// One of the first waiters in the tables: label, mode, the time for which it has waited, in microseconds, and how
/// many wait in all.
pub(crate) type WaiterRow = (String, i64, i64, i64);

/// How many of them are read: as many as a status shows.
pub(crate) const SHOWN: i64 = 16;

pub(crate) fn status(name: &LockName, holders: Vec<HolderRow>, waiters: Vec<WaiterRow>) -> LockStatus {
    let many = waiters.first().map_or(0, |(.., many)| *many);
    let waiting = waiters.into_iter().map(|(label, mode, waited, _)| {
        WaitingClaim::new(label, Mode::from_code(mode).unwrap_or(Mode::Exclusive), Some(span(waited)))
    });
    let holders = holders.into_iter().map(|(number, label, mode, left, held)| {
        let mode = Mode::from_code(mode).unwrap_or(Mode::Exclusive);
        Holder::new(token(number), label, mode, span(left)).held_for(span(held))
    });
    LockStatus::new(name.clone(), holders.collect(), usize::try_from(many).unwrap_or(0)).waiting(waiting)
}

/// A queue entry as it is sent to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// The number that the client has given to it.
    pub number: i64,
    /// The length of the lease under which a release may grant the lock. `None`: a release only notifies the
    /// waiter.
    pub lease: Option<Duration>,
    /// Whether the database has stored it, as far as the client knows.
    pub is_stored: bool,
}

/// The places that a client had at one moment.
#[derive(Clone, Debug, Default)]
pub struct KnownPlaces {
    /// The last number that the client had given to a place.
    pub last: i64,
    /// The numbers of the places whose waiters still waited.
    pub numbers: HashSet<i64>,
}

impl KnownPlaces {
    /// The places among those of the database, by owner and number, whose waiters were gone by then.
    pub fn stale(&self, places: Vec<(Uuid, i64)>) -> Vec<(Uuid, i64)> {
        let is_stale = |(_, number): &(Uuid, i64)| *number <= self.last && !self.numbers.contains(number);
        places.into_iter().filter(is_stale).collect()
    }
}

/// The answer of a database to a poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaiterPoll {
    /// The server's clock, in microseconds.
    pub(crate) clock: u64,
    /// The numbers of entries that the database does not have, or that no release would see. They must be
    /// taken anew.
    pub(crate) missing: Vec<i64>,
    /// The numbers of entries whose waiters should ask for their locks.
    pub(crate) turns: Vec<i64>,
    /// The time until the first lease ends on the locks that are waited for, if there is one.
    pub(crate) left: Option<Duration>,
}

/// The result of a portion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    pub gone: u64,
    /// The last name that was checked. `None`: there are no more.
    pub last: Option<String>,
}

/// The class of an error: what happened to the request, and whether to repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request was not applied, because of other requests: a deadlock, a serialization failure. Repeat it
    /// at once.
    Again,
    /// The request was not applied: a transaction has locked a row. Repeat it later.
    Blocked,
    /// The connection has failed, and the outcome is unknown. Every statement here may be repeated.
    Broken,
    /// The request was not applied: this server takes no writes, because it is a replica or has become one.
    /// The address may lead to another server now.
    ReadOnly,
    /// A repetition does not help.
    Fatal,
}
