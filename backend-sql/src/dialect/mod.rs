//! The requests about locks that each database implements in its own way.

pub(crate) mod answers;
pub(crate) mod database;
pub(crate) mod error;
pub(crate) mod examine;
pub(crate) mod follow_up;
pub(crate) mod groups;
pub(crate) mod hints;
pub(crate) mod places;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod queued;
pub(crate) mod requests;
pub(crate) mod sweep;
#[cfg(feature = "sqlite-unbundled")]
pub(crate) mod tickets;
pub(crate) mod verify;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant, LockName, LockStatus};

use crate::dialect::examine::Examine;
use crate::dialect::groups::Groups;
use crate::dialect::hints::Hints;
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::words::{Extension, Forced, Freed, Hold, KnownPlaces, Portion, TakeRequest, TryAcquire};

/// The requests about exclusive locks, and about all kinds of locks. All of them are idempotent for a given
/// owner, so each may be repeated after a lost reply. How a claim enters the queue and keeps its place there
/// differs: see `queued.rs` and `tickets.rs`.
pub trait Dialect: Groups + Examine {
    /// How often a client looks for places of its own that it does not know. It takes a scan of all places
    /// where no index finds those of a client.
    const OWN_PLACES_EVERY: Duration = Duration::from_secs(20);

    /// What is remembered about the locks.
    fn hints(&self) -> &Hints;

    /// Takes each lock that is free for its claim, exclusively. The names differ from each other.
    fn take(
        &self,
        conn: &mut Self::Conn,
        requests: &[TakeRequest],
    ) -> impl Future<Output = sqlx::Result<Vec<TryAcquire>>> + Send;

    /// Whether a caller without others may send this request itself
    /// ([`Service::is_light`](lockwell_core::backend::Service::is_light)): once one of its messages was sent,
    /// the server carries it out and keeps nothing locked, also if nobody reads the answer.
    fn is_light(&self, _: &Self::Conn, _: &Request<Self>) -> bool {
        false
    }

    /// Carries out requests of one kind about places in the queue, which not all databases have.
    fn queue(
        &self,
        conn: &mut Self::Conn,
        waiters: &Waiters,
        batch: &[Arc<Request<Self>>],
    ) -> impl Future<Output = sqlx::Result<Vec<Answer>>> + Send;

    /// Frees each lock that its claim holds exclusively, and finds the next waiter, or grants the lock to it.
    fn release(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send;

    /// Extends the lease of each grant. All of them have this kind of hold.
    fn renew(
        &self,
        conn: &mut Self::Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> impl Future<Output = sqlx::Result<Vec<Extension>>> + Send;

    /// Leaves queues, and finds the next waiter of each queue that had a place.
    fn leave_each(
        &self,
        conn: &mut Self::Conn,
        claims: &[Claim],
    ) -> impl Future<Output = sqlx::Result<Vec<Freed>>> + Send;

    /// The tickets of waiters of this process whose turn it is, among these names.
    fn turns(
        &self,
        conn: &mut Self::Conn,
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

    /// Deletes places of the client whose waiters it does not have any more, on a database that keeps them
    /// as long as the client gives heartbeats.
    fn forget_stale(
        &self,
        _: &mut Self::Conn,
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
