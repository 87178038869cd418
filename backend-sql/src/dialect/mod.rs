//! The requests about locks that each database implements in its own way.

pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod examine;
pub(crate) mod follow_up;
pub(crate) mod groups;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod queued;
pub(crate) mod sweep;
pub(crate) mod verify;

use std::future::Future;
use std::time::Duration;

use lockcore::backend::{Hot, PushedGrant, Waiters};
use lockcore::{Claim, FencingToken, Grant, Holder, LockName, LockStatus, Mode};
use sqlx::Result as Answer;
use uuid::Uuid;

use crate::dialect::examine::Examine;
use crate::dialect::groups::Groups;
use crate::client::places::{QueueRow, WaiterPoll};
use crate::lock::purge::Portion;
use crate::dialect::sweep::Swept;

/// The ticket of a claim that is not in the queue. It comes after all others.
pub(crate) const NO_TICKET: i64 = i64::MAX;

/// Stands for a ticket where the head of the queue is not the only waiter that can be next.
pub(crate) const SEVERAL: i64 = -1;

/// A request to take a lock.
#[derive(Clone, Debug)]
pub struct TakeRequest {
    pub claim: Claim,
    pub ticket: i64,
}

/// A claim with its place in the queue, on databases where a release grants the lock to a waiter.
#[derive(Clone, Debug)]
pub struct QueuedClaim {
    pub claim: Claim,
    pub row: QueueRow,
}

/// A heartbeat of a client. It counts for all its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    pub client: Uuid,
    /// Each sign of the client has another number. A grant contains the number of the last sign that the server had seen.
    pub number: u64,
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
    /// The claim is already a member of the group, with this token.
    Member(FencingToken),
    /// Another claim holds the lock, or is ahead in the queue. The time until the lease of a holder ends, if it is known.
    Busy(Option<Duration>),
    /// A group holds the lock, and the lease of one of its members has ended.
    Stale,
    /// A transaction has locked a row. A claim that was sent in a batch may have been granted nevertheless.
    Blocked,
    /// The lock is in use as another kind of lock.
    KindClash(Mode),
}

impl TryAcquire {
    /// A refusal. `in_use` is the mode in which the lock is held or, if it is free, the mode that the first waiter wants.
    /// `left` is the time in microseconds until the first lease of its holders ends.
    pub(crate) fn refused(claim: &Claim, in_use: Option<i64>, left: Option<i64>) -> Self {
        match in_use.and_then(Mode::from_code) {
            // A holder whose lease has ended must not refuse others, nor cause an error.
            _ if left.is_some_and(|left| left <= 0) => Self::Stale,
            Some(mode) if !mode.is_same_kind(claim.mode()) => Self::KindClash(mode),
            _ => Self::Busy(left.map(span)),
        }
    }
}

/// The result of releasing a lock or of leaving the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub released: bool,
    /// It may have been done earlier: by a try whose answer was lost, or by a statement that did not say which locks it freed.
    pub in_doubt: bool,
    /// The lock is still held: a transaction has locked its row.
    pub blocked: bool,
    /// The tickets of the waiters of this process whose turn it is now.
    pub next: Vec<i64>,
    /// The notification for a waiter of this process, with what the release has granted to it.
    pub notification: Option<Notification>,
}

/// A notification for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The number of the waiter's place.
    pub ticket: i64,
    /// What a release has granted to the waiter. `None`: the waiter must ask.
    pub granted: Option<PushedGrant>,
}

impl Notification {
    /// A notification without a grant: it is the waiter's turn to ask.
    pub(crate) fn to_recheck(ticket: i64) -> Self {
        Self { ticket, granted: None }
    }

    /// Parses the message of a notification: `TICKET`, or `TICKET:TOKEN:ENDS:LEASE:SIGN`, the times in microseconds.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ticket, grant) =
            text.split_once(':').map_or((text, None), |(ticket, grant)| (ticket, Some(grant)));
        let ticket = ticket.parse().ok()?;
        let Some(grant) = grant else { return Some(Self::to_recheck(ticket)) };
        let mut numbers = grant.split(':').map(|part| part.parse::<u64>().ok());
        let (token, ends) = (FencingToken::new(numbers.next()??), numbers.next()??);
        let (lease, seen) = (Duration::from_micros(numbers.next()??), numbers.next()??);
        let granted = PushedGrant::new(token, lease, ends, seen);
        Some(Self { ticket, granted: Some(granted) })
    }

    pub(crate) fn deliver(self, waiters: &Waiters) {
        match self.granted {
            Some(granted) => waiters.grant(self.ticket, granted),
            None => waiters.notify(self.ticket),
        }
    }
}

impl Freed {
    pub(crate) fn new(released: bool, next: Vec<i64>) -> Self {
        Self { released, next, ..Self::default() }
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

/// A holder in the tables: token, label, mode, the time left of its lease, and the time since the grant, in microseconds.
pub(crate) type HolderRow = (i64, String, i64, i64, i64);

/// How many wait, and how long the first of them has waited. `None`: nobody waits.
pub(crate) type WaitersRow = (i64, Option<i64>);

pub(crate) fn status(name: &LockName, holders: Vec<HolderRow>, waiters: WaitersRow) -> LockStatus {
    let (waiters, longest_wait) = waiters;
    let holders = holders.into_iter().map(|(number, label, mode, left, held)| {
        let mode = Mode::from_code(mode).unwrap_or(Mode::Exclusive);
        Holder::new(token(number), label, mode, span(left)).held_for(span(held))
    });
    LockStatus::new(name.clone(), holders.collect(), usize::try_from(waiters).unwrap_or(0))
        .longest_wait(longest_wait.map(span))
}

/// The requests about exclusive locks, about the queue, and about all kinds of locks. All of them are idempotent for a given
/// owner, so each may be repeated after a lost reply.
pub trait Dialect: Groups + Examine {
    /// Takes each lock that is free for its claim, exclusively. The names differ from each other.
    fn take(
        &self,
        conn: &mut Self::Conn,
        requests: &[TakeRequest],
    ) -> impl Future<Output = Answer<Vec<TryAcquire>>> + Send;

    /// The locks that somebody has waited for lately, on databases where a release grants the lock to the first waiter. There,
    /// claims with places use [`claim`](Self::claim), one heartbeat counts for all waiters of a client
    /// ([`poll_waiters`](Self::poll_waiters)), and `enqueue`, `keep` and `forget_places` are not used. `None`: a release notifies the
    /// first waiter, which asks again.
    fn hot(&self) -> Option<&Hot> {
        None
    }

    /// Takes each lock that is free for its claim, or a place in its queue. A claim that has a place keeps it. If the request
    /// was a heartbeat of the client, it returns the server's clock as well, in microseconds.
    fn claim(
        &self,
        _: &mut Self::Conn,
        _: &[QueuedClaim],
        _: Sign,
    ) -> impl Future<Output = Answer<(Vec<TryAcquire>, Option<u64>)>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Gives a heartbeat for all waiters of the client, and asks about those with these numbers and owners: which of them
    /// have no place any more (for example after a grant whose notification was lost), and which find their lock free.
    fn poll_waiters(
        &self,
        _: &mut Self::Conn,
        _: &[(i64, Uuid)],
        _: Sign,
    ) -> impl Future<Output = Answer<WaiterPoll>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Frees each lock that its claim holds exclusively, and finds the next waiter, or grants the lock to it.
    fn release(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send;

    /// Extends the lease of each grant. All of them have this kind of hold.
    fn renew(
        &self,
        conn: &mut Self::Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> impl Future<Output = Answer<Vec<Extension>>> + Send;

    /// Takes a place at the end of the queue. A repeated request returns the same place.
    fn enqueue(
        &self,
        _: &mut Self::Conn,
        _: &Claim,
        _client: Uuid,
    ) -> impl Future<Output = Answer<i64>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Gives a heartbeat for the waiters with these tickets and owners. Returns for each whether it still has its place.
    /// Where a ticket can be given twice, the owner says whose it is.
    fn keep(&self, _: &mut Self::Conn, _: &[(i64, Uuid)]) -> impl Future<Output = Answer<Vec<bool>>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Deletes the places of waiters that have their locks.
    fn forget_places(&self, _: &mut Self::Conn, _: &[i64]) -> impl Future<Output = Answer<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Leaves the queue. Returns whether there was a place.
    fn leave(&self, _: &mut Self::Conn, _: &Claim) -> impl Future<Output = Answer<bool>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Leaves queues, and finds the next waiter of each queue that had a place.
    fn leave_each(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send {
        async move {
            let mut answers = Vec::with_capacity(claims.len());
            for claim in claims {
                let left = self.leave(conn, claim).await?;
                // A separate statement: it sees all places that were taken before this claim left.
                answers.push(Freed::new(left, self.next(conn, claim.name(), waiters).await?));
            }
            Ok(answers)
        }
    }

    /// The tickets of waiters of this process whose turn it is, among these names.
    fn turns(
        &self,
        conn: &mut Self::Conn,
        waiters: &Waiters,
        names: &[LockName],
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    fn inspect(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = Answer<LockStatus>> + Send;

    /// Frees a lock, whoever holds it. Returns the number of holders.
    fn force_release(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// Deletes places of waiters that are gone: at most a portion of them.
    fn sweep(&self, conn: &mut Self::Conn) -> impl Future<Output = Answer<Swept>> + Send;

    /// Deletes rows of locks that nobody has used for `idle`, among the first names after `after`.
    fn purge(
        &self,
        conn: &mut Self::Conn,
        idle: Duration,
        after: &str,
    ) -> impl Future<Output = Answer<Portion>> + Send;
}

fn other_queue() -> sqlx::Error {
    sqlx::Error::Protocol("the queue of this database is kept in another way".into())
}
