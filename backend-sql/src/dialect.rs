//! What differs from database to database.

use std::future::Future;
use std::time::Duration;

use lockcore::backend::{Hot, PushedGrant, Waiters};
use lockcore::{Claim, FencingToken, Grant, Holder, LockName, LockStatus, Mode};
use sqlx::Result as Answer;
use uuid::Uuid;

use crate::examine::Examine;
use crate::groups::Groups;
use crate::places::{Look, Seat};
use crate::purge::Portion;

/// The ticket of a claim that does not queue: behind everybody.
pub(crate) const NO_TICKET: i64 = i64::MAX;

/// The mark of a queue whose head does not come in alone, where a ticket is asked for.
pub(crate) const SEVERAL: i64 = -1;

/// One question for a lock.
#[derive(Clone, Debug)]
pub struct Ask {
    pub claim: Claim,
    pub ticket: i64,
}

/// A claim with its place in the queue, where releases hand locks over.
#[derive(Clone, Debug)]
pub struct Entry {
    pub claim: Claim,
    pub seat: Seat,
}

/// A sign of life of a client, for all its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    pub client: Uuid,
    /// No other sign of the client has this number. A grant names the last one that the server had seen.
    pub number: u64,
}

/// Which table has the record of a hold.
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

/// The answer to a question for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    Granted(FencingToken),
    /// The claim is a member of the group already, with this token.
    Member(FencingToken),
    /// Held by another, or somebody stands ahead. The time until the lease of a holder ends, if known.
    Busy(Option<Duration>),
    /// Held by a group, and the lease of a member has ended.
    Stale,
    /// A transaction has locked a row. A claim that travelled with others may have been granted all the same.
    Blocked,
    /// In use as another kind of lock.
    Clash(Mode),
}

impl Took {
    /// A refusal. `in_use` is how the lock is held or, if it is not, how the first one ahead asks for it; `left` is the
    /// time in microseconds until the first lease of its holders ends.
    pub(crate) fn refused(claim: &Claim, in_use: Option<i64>, left: Option<i64>) -> Self {
        match in_use.and_then(Mode::from_code) {
            // The dead must not keep others out, nor be the reason for an error.
            _ if left.is_some_and(|left| left <= 0) => Self::Stale,
            Some(mode) if !mode.is_same_kind(claim.mode()) => Self::Clash(mode),
            _ => Self::Busy(left.map(span)),
        }
    }
}

/// What a release or a departure from the queue did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub released: bool,
    /// An earlier try, whose answer was lost, may have done it.
    pub in_doubt: bool,
    /// It is still held: a transaction has locked the row.
    pub blocked: bool,
    /// The tickets of those whose turn it is now and who wait in this process.
    pub next: Vec<i64>,
    /// What it has granted to a waiter of this process.
    pub handed: Option<Told>,
}

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The number of its place.
    pub ticket: i64,
    /// What a release has granted to it. Without that it asks.
    pub granted: Option<PushedGrant>,
}

impl Told {
    /// It is its turn to ask.
    pub(crate) fn to_ask(ticket: i64) -> Self {
        Self { ticket, granted: None }
    }

    /// The message with this text: `TICKET`, or `TICKET:TOKEN:ENDS:LEASE:SIGN`, the times in microseconds.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ticket, grant) =
            text.split_once(':').map_or((text, None), |(ticket, grant)| (ticket, Some(grant)));
        let ticket = ticket.parse().ok()?;
        let Some(grant) = grant else { return Some(Self::to_ask(ticket)) };
        let mut numbers = grant.split(':').map(|part| part.parse::<u64>().ok());
        let (token, ends) = (FencingToken::new(numbers.next()??), numbers.next()??);
        let (lease, seen) = (Duration::from_micros(numbers.next()??), numbers.next()??);
        let granted = PushedGrant::new(token, lease, ends, seen);
        Some(Self { ticket, granted: Some(granted) })
    }

    pub(crate) fn tell(self, waiters: &Waiters) {
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

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    Extended,
    /// The row is locked by a transaction, as `verify_in` does: ask again.
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

/// A holder as the tables have it: token, label, mode, and the times that are left and that have passed.
pub(crate) type HolderRow = (i64, String, i64, i64, i64);

/// How many wait, and how long the first of them has waited. `None`: nobody waits, or somebody entered by an earlier
/// version, which does not say when.
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

/// The statements about locks that one holds alone, about the queue, and about both kinds of locks. All of them are
/// idempotent for a given owner, so each may be repeated after a lost reply.
pub trait Dialect: Groups + Examine {
    /// Takes each lock that is free for its claim, alone. The names differ from each other.
    fn take(&self, conn: &mut Self::Conn, asks: &[Ask]) -> impl Future<Output = Answer<Vec<Took>>> + Send;

    /// The locks that somebody has waited for lately, where a release grants the lock to the first who waits for it. Then
    /// claims with places come by [`claim`](Self::claim), one sign of life stands for all waiters of a client
    /// ([`look`](Self::look)), and `enroll`, `keep` and `tidy` are not used. `None`: a release wakes the first, which
    /// asks again.
    fn hot(&self) -> Option<&Hot> {
        None
    }

    /// Takes each lock that is free for its claim, or takes a place in its queue; one that has a place keeps it. It is a sign
    /// of life of the client: then it answers with the server's clock as well, in microseconds.
    fn claim(
        &self,
        _: &mut Self::Conn,
        _: &[Entry],
        _: Sign,
    ) -> impl Future<Output = Answer<(Vec<Took>, Option<u64>)>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// A sign of life of the client, for all its waiters, and whose turn it is among those with these seats and owners:
    /// who has no place any more, by a grant that was not heard of for one; and whose lock is free.
    fn look(
        &self,
        _: &mut Self::Conn,
        _: &[(i64, Uuid)],
        _: Sign,
    ) -> impl Future<Output = Answer<Look>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Frees each lock that its claim holds alone, and finds who is next, or grants to it.
    fn release(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = Answer<Vec<Freed>>> + Send;

    /// Extends each lease that its claim holds, all of them in this way.
    fn renew(
        &self,
        conn: &mut Self::Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> impl Future<Output = Answer<Vec<Extension>>> + Send;

    /// Takes a place at the end of the queue; the same place again when asked again.
    fn enroll(
        &self,
        _: &mut Self::Conn,
        _: &Claim,
        _client: Uuid,
    ) -> impl Future<Output = Answer<i64>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Says that the waiters with these tickets and owners are still there; answers for each whether it still has its
    /// place. Where a ticket may be given twice, the owner tells whose it is.
    fn keep(&self, _: &mut Self::Conn, _: &[(i64, Uuid)]) -> impl Future<Output = Answer<Vec<bool>>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Forgets the places of waiters that have got their locks.
    fn tidy(&self, _: &mut Self::Conn, _: &[i64]) -> impl Future<Output = Answer<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Gives the place in the queue up; answers whether there was one.
    fn leave(&self, _: &mut Self::Conn, _: &Claim) -> impl Future<Output = Answer<bool>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Gives places in queues up, and finds who is next where one was.
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
                // A statement of its own, which sees all places that were taken before we left.
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

    /// Frees a lock whoever holds it; answers with how many did.
    fn force_release(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = Answer<usize>> + Send;

    /// Deletes rows of locks that nobody has used for `idle`, among the first names behind `after`. The first portion, behind
    /// no name, takes places of waiters that are gone along.
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
