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

use lockwell_core::backend::{Hot, PushedGrant, Waiters};
use lockwell_core::{Claim, Grant, LockName, LockStatus, Moment};
use uuid::Uuid;

use crate::dialect::examine::Examine;
use crate::dialect::groups::Groups;
use crate::dialect::sweep::Swept;
use crate::words::{
    Entered, Extension, Forced, Freed, Hold, KnownPlaces, LoneRequest, Portion, QueuedClaim, Sign,
    TakeRequest, TryAcquire, WaiterPoll,
};

/// The requests about exclusive locks, about the queue, and about all kinds of locks. All of them are
/// idempotent for a given owner, so each may be repeated after a lost reply.
pub trait Dialect: Groups + Examine {
    /// Whether the places of a client are found by an index, so that each may look for its own now and then.
    /// Otherwise it does so only after it has subscribed again.
    const FINDS_PLACES_OF_CLIENT: bool = false;

    /// Takes each lock that is free for its claim, exclusively. The names differ from each other.
    fn take(
        &self,
        conn: &mut Self::Conn,
        requests: &[TakeRequest],
    ) -> impl Future<Output = sqlx::Result<Vec<TryAcquire>>> + Send;

    /// The locks that somebody has waited for lately, on databases where a release grants the lock to the
    /// first waiter. There, claims with places use [`claim`](Self::claim), one heartbeat counts for all
    /// waiters of a client ([`poll_waiters`](Self::poll_waiters)), and `enqueue`, `keep` and `forget_places`
    /// are not used. `None`: a release notifies the first waiter, which asks again or, on SQLite, may have
    /// been granted the lock.
    fn hot(&self) -> Option<&Hot> {
        None
    }

    /// Whether a caller without others may send this request itself
    /// ([`Service::is_light`](lockwell_core::backend::Service::is_light)): once one of its messages was sent,
    /// the server carries it out and keeps nothing locked, also if nobody reads the answer.
    fn is_light(&self, _: &Self::Conn, _: LoneRequest<'_>) -> bool {
        false
    }

    /// The locks that releases of this process have just granted to waiters, where the database numbers the
    /// places: a claim takes a place with its first request, since it would be refused without one.
    fn handed_on(&self) -> Option<&Hot> {
        None
    }

    /// Takes each lock that is free for its claim, or a place in its queue. A claim that has a place keeps
    /// it. If the request was a heartbeat of the client, it returns the server's clock as well, in
    /// microseconds.
    fn claim(
        &self,
        _: &mut Self::Conn,
        _: &[QueuedClaim],
        _: Sign,
    ) -> impl Future<Output = sqlx::Result<(Vec<TryAcquire>, Option<u64>)>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Gives a heartbeat for all waiters of the client, and asks about those with these numbers and owners:
    /// which of them have no place any more (for example after a grant whose notification was lost), and
    /// which find their lock free.
    fn poll_waiters(
        &self,
        _: &mut Self::Conn,
        _: &[(i64, Uuid)],
        _: Sign,
    ) -> impl Future<Output = sqlx::Result<WaiterPoll>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Frees each lock that its claim holds exclusively, and finds the next waiter, or grants the lock to it.
    fn release(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send;

    /// Extends the lease of each grant. All of them have this kind of hold.
    fn renew(
        &self,
        conn: &mut Self::Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> impl Future<Output = sqlx::Result<Vec<Extension>>> + Send;

    /// Takes a place at the end of the queue, and then requests the lock, as far as reading can refuse it. A
    /// repeated request returns the same place. `receives`: whether notifications arrive at this process, so
    /// that a release may grant the lock to the claim.
    fn enqueue(
        &self,
        _: &mut Self::Conn,
        _: &Claim,
        _client: Uuid,
        _receives: bool,
    ) -> impl Future<Output = sqlx::Result<Entered>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// From when until when a grant is valid that a release is said to have made for this claim, with a place
    /// from `enqueue`. `None`: the claim sends a request, which may read the grant.
    fn accept(&self, _: &Self::Conn, _: &Claim, _: &PushedGrant) -> Option<(Moment, Moment)> {
        None
    }

    /// Gives a heartbeat for the waiters with these tickets and owners. Returns for each whether it still has
    /// its place. Where a ticket can be given twice, the owner says whose it is.
    fn keep(
        &self,
        _: &mut Self::Conn,
        _: &[(i64, Uuid)],
    ) -> impl Future<Output = sqlx::Result<Vec<bool>>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Deletes the places of waiters that have their locks.
    fn forget_places(&self, _: &mut Self::Conn, _: &[i64]) -> impl Future<Output = sqlx::Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Leaves the queue. Returns whether there was a place.
    fn leave(&self, _: &mut Self::Conn, _: &Claim) -> impl Future<Output = sqlx::Result<bool>> + Send {
        std::future::ready(Err(other_queue()))
    }

    /// Leaves queues, and finds the next waiter of each queue that had a place.
    fn leave_each(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send {
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
    ) -> impl Future<Output = sqlx::Result<Vec<i64>>> + Send;

    fn inspect(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
    ) -> impl Future<Output = sqlx::Result<LockStatus>> + Send;

    /// Frees a lock, whoever holds it. Returns the number of holders. A repeated try frees only those whom an
    /// earlier one has seen.
    fn force_release(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        forced: &Forced,
    ) -> impl Future<Output = sqlx::Result<usize>> + Send;

    /// Deletes places of waiters that are gone: at most a portion of them.
    fn sweep(&self, conn: &mut Self::Conn) -> impl Future<Output = sqlx::Result<Swept>> + Send;

    /// Deletes places of this client whose waiters it does not have any more, on a database that keeps them
    /// as long as the client gives heartbeats.
    fn forget_stale(
        &self,
        _: &mut Self::Conn,
        _client: Uuid,
        _known: &KnownPlaces,
    ) -> impl Future<Output = sqlx::Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// Deletes rows of locks that nobody has used for `idle`, among the first names after `after`.
    fn purge(
        &self,
        conn: &mut Self::Conn,
        idle: Duration,
        after: &str,
    ) -> impl Future<Output = sqlx::Result<Portion>> + Send;
}

fn other_queue() -> sqlx::Error {
    sqlx::Error::Protocol("the queue of this database is kept in another way".into())
}
