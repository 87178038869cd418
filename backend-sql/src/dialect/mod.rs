//! The requests about locks that each database implements in its own way.

pub(crate) mod answers;
pub(crate) mod database;
pub(crate) mod error;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod examine;
pub(crate) mod follow_up;
pub(crate) mod groups;
pub(crate) mod hints;
pub(crate) mod places;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod queued;
pub(crate) mod records;
pub(crate) mod requests;
pub(crate) mod sweep;
pub(crate) mod verify;

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant, LockName, LockStatus, Mode};

use crate::dialect::database::Outcome;
use crate::dialect::hints::Hints;
use crate::dialect::records::Records;
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::words::{Extension, Forced, Freed, Hold, KnownPlaces, Portion, TakeRequest, TryAcquire};

/// The requests about locks. All of them are idempotent for a given owner, so each may be repeated after a
/// lost reply. `groups.rs` says how several claims hold a lock together. How a claim enters the queue and
/// keeps its place there differs: see `queued.rs`, and `sqlite/tickets.rs`.
pub trait Dialect: Records {
    /// How often a client looks for places of its own that it does not know. It takes a scan of all places
    /// where no index finds those of a client.
    const OWN_PLACES_EVERY: Duration = Duration::from_secs(20);

    /// What is remembered about the locks.
    fn hints(&self) -> &Hints;

    /// Takes each lock that is free for its claim, exclusively. The names differ from each other.
    fn take(&self, conn: &mut Self::Conn, requests: &[TakeRequest]) -> impl Outcome<Vec<TryAcquire>>;

    /// Adds each claim to the group that holds its lock, or makes it the first member. All claims have this
    /// mode, and are sorted by name and ticket. A claim that becomes a member leaves the queue.
    fn join(
        &self,
        conn: &mut Self::Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> impl Outcome<Vec<TryAcquire>>;

    /// Whether a caller without others may send this request itself
    /// ([`Service::is_light`](lockwell_core::backend::Service::is_light)): once one of its messages was sent,
    /// the server carries it out and keeps nothing locked, also if nobody reads the answer.
    fn is_light(&self, conn: &Self::Conn, request: &Request<Self>) -> bool;

    /// Carries out requests of one kind about places in the queue, which not all databases have.
    fn queue(
        &self,
        conn: &mut Self::Conn,
        waiters: &Waiters,
        batch: &[Arc<Request<Self>>],
    ) -> impl Outcome<Vec<Answer>>;

    /// Frees each lock that its claim holds exclusively, and finds the next waiter, or grants the lock to it.
    fn release(&self, conn: &mut Self::Conn, claims: &[Claim]) -> impl Outcome<Vec<Freed>>;

    /// Removes each claim from its group, and finds the next waiters.
    fn leave_group(&self, conn: &mut Self::Conn, claims: &[Claim]) -> impl Outcome<Vec<Freed>>;

    /// Extends the lease of each grant. All of them have this kind of hold.
    fn renew(&self, conn: &mut Self::Conn, hold: Hold, grants: &[Grant]) -> impl Outcome<Vec<Extension>>;

    /// Leaves queues, and finds the next waiter of each queue that had a place.
    fn leave_each(&self, conn: &mut Self::Conn, claims: &[Claim]) -> impl Outcome<Vec<Freed>>;

    /// Turns the one holder into the first of a group of readers. False: it holds nothing.
    fn downgrade(&self, conn: &mut Self::Conn, grant: &Grant) -> impl Outcome<bool>;

    /// The tickets of waiters of this process whose turn it is, among these names.
    fn turns(&self, conn: &mut Self::Conn, names: &[LockName]) -> impl Outcome<Vec<i64>>;

    /// The head of the queue, if it can have the lock: its ticket if it waits in this process, or
    /// [`SEVERAL`](crate::words::SEVERAL) if other waiters may be next as well. A head of another process is
    /// notified, where the database can do that.
    fn head(&self, conn: &mut Self::Conn, name: &LockName) -> impl Outcome<Option<i64>>;

    /// All waiters whose turn it is: returns the tickets of those of this process. The others are notified,
    /// where the database can do that.
    fn due_waiters(&self, conn: &mut Self::Conn, name: &LockName) -> impl Outcome<Vec<i64>>;

    fn inspect(&self, conn: &mut Self::Conn, name: &LockName) -> impl Outcome<LockStatus>;

    /// Frees a lock, whoever holds it. Returns the number of holders. A repeated try frees only those whom an
    /// earlier one has seen.
    fn force_release(&self, conn: &mut Self::Conn, name: &LockName, forced: &Forced) -> impl Outcome<usize>;

    /// Removes members whose leases have ended from these groups, and finds the next waiters.
    fn reap(&self, conn: &mut Self::Conn, names: &[LockName]) -> impl Outcome<Vec<i64>>;

    /// The locks that have members whose leases ended longer ago than `idle`.
    fn stale_groups(&self, conn: &mut Self::Conn, idle: Duration) -> impl Outcome<Vec<LockName>>;

    /// Deletes places of waiters that are gone: at most a portion of them.
    fn sweep(&self, conn: &mut Self::Conn) -> impl Outcome<Swept>;

    /// Deletes places of the client whose waiters it does not have any more, on a database that keeps them
    /// as long as the client gives heartbeats.
    fn forget_stale(&self, _: &mut Self::Conn, _known: &KnownPlaces) -> impl Outcome<()> {
        std::future::ready(Ok(()))
    }

    /// Deletes rows of locks that nobody has used for `idle`, among the first names after `after`.
    fn purge(&self, conn: &mut Self::Conn, idle: Duration, after: &str) -> impl Outcome<Portion>;
}
