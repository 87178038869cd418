//! The contract between `lockcore` and the backends.

use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::{
    Capabilities, Claim, Clock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment, Released,
    Renewal, Result,
};

/// One kind of lock server: the trait that every backend implements.
///
/// It is small, object safe and without policy. Applications do not call it: they use [`Locks`](crate::Locks), which
/// adds renewal, loss, cancellation and clean-up, once for all backends. `Arc<dyn DistributedLock>` is the result of
/// a configuration.
///
/// # What a backend must keep
///
/// 1. **Ownership is per acquisition.** It frees and renews by [`Claim::owner`], never by name alone.
/// 2. **Idempotent by owner.** An `acquire` that is repeated for the same claim, after a lost reply, answers with
///    a grant of the same claim, which replaces the earlier one. Its token is the same; only where votes decide it can be
///    higher, since another majority may have voted. A `release` that is repeated is harmless.
/// 3. **A release never overtakes its acquire**: same ordered connection, or after the acquire's answer, or the
///    connection is closed.
/// 4. **Server time for expiry.** A lease ends by the server's clock, counted from the arrival of the request; the
///    deadline of a [`Grant`] is counted from before the request was sent. No client's wall clock is compared.
/// 5. **Tokens rise strictly** for each name: across holders, modes, releases, restarts and re-creation of the
///    record.
/// 6. **Every call is bounded.** `acquire` returns by the end of the claim's wait or soon after its cancellation;
///    all other calls within a few seconds, whatever the network does.
/// 7. **A refusal leaves nothing.** With [`Wait::No`](crate::Wait::No), a refused claim has no record at the server. A
///    claim that is about to queue calls [`Claim::note_queued`] first.
///
/// 8. **No runtime depends on another.** `renew` and `release` are called on the keeper thread as well, which has a
///    runtime of its own, and an application may use one client on several runtimes. A runtime that is blocked, not
///    driven or gone must not delay the callers on others. Connections that depend on the runtime that made them are
///    kept [per runtime](crate::backend::PerRuntime).
/// 9. **The end of a lease shows soon.** When a lease has ended at the server, the lock is granted to another, and is no
///    longer shown as held, within a second. A server that counts in whole seconds makes its leases longer, never shorter,
///    than [`Claim::ttl`]; this second then includes what it adds. The time left may be shown in whole seconds.
/// 10. **Few round trips.** A free lock is granted in two round trips at most: over a network whose round trip takes two
///    fifths of a lease, a lock is acquired and kept.
/// 11. **A lost answer is not an error by itself.** When a connection breaks, requests that mean the same when they are
///    repeated are repeated on a new one, within the limits of rule 6. What cannot be answered in time is
///    [`Unreachable`](crate::ErrorKind::Unreachable), [`UnknownOutcome`](crate::ErrorKind::UnknownOutcome) or
///    [`TimedOut`](crate::ErrorKind::TimedOut), never [`Lost`](crate::ErrorKind::Lost). A stop of the server that is
///    shorter than the lease costs neither holders nor waiters anything, and after a restart clients go on.
/// 12. **A release that is repeated** says [`Released`](crate::Released::Released) if an earlier copy of it, whose
///     answer was
///    lost, may have done it.
/// 13. **What is shown** ([`inspect`](Self::inspect)) names the holders by their tokens and labels. How long a lock has
///     been
///    held counts from its grant, not from the beginning of the wait, and does not start again with a renewal.
///
/// Leases may be as short as the backend allows, with a shortest of five seconds at most. The
#[cfg_attr(feature = "conformance", doc = "[conformance suite](crate::conformance)")]
#[cfg_attr(not(feature = "conformance"), doc = "conformance suite (feature `conformance`)")]
/// checks all of this.
///
/// `lockcore` polls the futures of `acquire` and `release` to their ends: when a caller leaves, its future moves to a
/// task of its own, with the claim cancelled. Only the end of a runtime drops it half-way; the keeper then
/// calls `release`.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// What this backend promises. `lockcore` refuses, before any I/O, what a backend cannot honour.
    fn capabilities(&self) -> Capabilities;

    /// `async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>>`
    ///
    /// Claims the lock, waiting as [`Claim::wait`] allows. `None`: still held by someone else when the wait ended or
    /// the claim was cancelled. After `None` from a queue, or after an error, `lockcore` calls `release` in the
    /// background.
    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>>;

    /// `async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>>`
    ///
    /// Claims several different locks, none of which waits ([`Wait::No`](crate::Wait::No)), in as few round trips as the
    /// server allows. One answer per claim, in order, as `acquire` would give it.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        join_all(claims.iter().map(|claim| self.acquire(claim))).await
    }

    /// `async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal>`
    ///
    /// Extends many leases in as few round trips as the server allows. One answer per grant, in order.
    ///
    /// It returns by `until`, which lockcore derives from the validity of the leases: a lease without an answer by then is
    /// [`Unknown`](Renewal::Unknown), and the answers of the others are returned. A part of the server that hangs must not
    /// delay the answers of the other parts. After `until` lockcore drops the future, and all leases count as unknown.
    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal>;

    /// `async fn release(&self, claim: &Claim) -> Result<Released>`
    ///
    /// Releases a claim, whether it was granted, queued, or the outcome is unknown. Idempotent. Never frees another
    /// owner's lock.
    async fn release(&self, claim: &Claim) -> Result<Released>;

    /// `async fn downgrade(&self, grant: &Grant) -> Result<Grant>`
    ///
    /// Turns an exclusive hold into a shared one, in one step at the server: no other writer comes in between, and
    /// readers who wait at the head of the queue are let in. The answer is [`Grant::downgraded`], with a new record if
    /// the backend needs one; owner, token and lease stay. Idempotent. An error of kind
    /// [`Lost`](crate::ErrorKind::Lost): the owner does not hold the lock. Called only where
    /// [`Capabilities::downgrade`] is set.
    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let message = format!("this backend cannot downgrade {}", grant.claim().name());
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// `async fn inspect(&self, name: &LockName) -> Result<LockStatus>`
    ///
    /// Who holds `name`, since when, with which token, and how many wait; and since when the first of them waits, if the
    /// server knows ([`LockStatus::longest_wait`]).
    ///
    /// It is the state at a moment between the call and the answer: a lock whose release was answered to anybody before the
    /// call is not shown as held.
    async fn inspect(&self, name: &LockName) -> Result<LockStatus>;

    /// `async fn names(&self) -> Result<Vec<LockName>>`
    ///
    /// The names of all locks that are held now, for people. It may name some more, and miss changes
    /// while it runs. It changes nothing, and may read all records of the server.
    async fn names(&self) -> Result<Vec<LockName>> {
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot list the locks that are held"))
    }

    /// `async fn examine(&self) -> Result<Vec<Finding>>`
    ///
    /// Checks the server for an operator: whether it keeps what it has acknowledged, its
    /// replication, its clock, and what else can weaken its locks. It changes nothing.
    async fn examine(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// `async fn force_release(&self, name: &LockName) -> Result<usize>`
    ///
    /// For operators: frees `name` from all its holders, and returns how many there were. Their next renewal fails as lost.
    async fn force_release(&self, name: &LockName) -> Result<usize>;

    /// `async fn lost(&self, grant: &Grant)`
    ///
    /// Resolves when the server itself says that the grant is gone. Pending for ever where there is no such push.
    /// Called only where [`Capabilities::loss_push`] is set.
    async fn lost(&self, grant: &Grant) {
        let _: &Grant = grant;
        std::future::pending::<()>().await;
    }

    /// `async fn doubted(&self, grant: &Grant)`
    ///
    /// Resolves when the grant has become doubtful: the connection that keeps it alive is down. The guard turns
    /// [`Suspect`](crate::LeaseState::Suspect) at once, and a renewal decides. Called again after each doubt; pending for
    /// ever where a grant does not depend on a connection. Called only where [`Capabilities::loss_push`] is set.
    async fn doubted(&self, grant: &Grant) {
        let _: &Grant = grant;
        std::future::pending::<()>().await;
    }

    /// The clock for leases and waits. Only tests use another than the machine's.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// `async fn close(&self)`
    ///
    /// Ends the connections and sessions of all runtimes in an orderly way. Locks that are still held end with their
    /// leases.
    async fn close(&self) {}
}
