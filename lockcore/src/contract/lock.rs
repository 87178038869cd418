//! The contract between `lockcore` and the backends.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use crate::{
    Capabilities, Claim, Clock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment, Record,
    RecordKind, RecordWrite, Released, Renewal, Result,
};

/// The interface to one kind of lock server, which every backend implements.
///
/// It is small, object safe and without policy. Applications do not call it. They use
/// [`Locks`](crate::Locks), which adds renewal, loss, cancellation and clean-up for all backends. A
/// configuration yields an `Arc<dyn DistributedLock>`.
///
/// # What a backend must keep
///
/// 1. **Ownership is per acquisition.** A backend releases and renews by [`Claim::owner`], never by name
///    alone.
/// 2. **Idempotent by owner.** An `acquire` that is repeated for the same claim, after a lost reply, returns
///    a grant of the same claim, which replaces the earlier one. Its token is the same. Only if servers vote,
///    or the server has forgotten the grant, it can be higher. A `release` that is repeated is harmless.
/// 3. **A release never overtakes its acquire**: it is sent on the same ordered connection, or after the
///    answer to the acquire, or after the connection of the acquire was closed.
/// 4. **Server time for expiry.** A lease ends by the server's clock, counted from the arrival of the
///    request. The deadline of a [`Grant`] is counted from a time before the request was sent. The wall
///    clocks of clients do not matter.
/// 5. **Tokens rise strictly** for each name: across holders, modes, releases, restarts, and deletion of the
///    record. Without [`Fencing`](crate::Requirement::Fencing) any number will do.
/// 6. **Every call ends in time.** `acquire` returns by the end of the claim's wait, or soon after its
///    cancellation. All other calls return within a few seconds
///    ([`ServerUrl::timeout`](crate::ServerUrl::timeout)), whatever the network does.
/// 7. **A refusal leaves nothing.** With [`Wait::No`](crate::Wait::No), a refused claim has no record at the
///    server. Before a claim enters a queue, the backend calls [`Claim::note_queued`].
/// 8. **No runtime depends on another.** The keeper thread calls `renew` and `release`, too, on its own
///    runtime. An application may use one client on several runtimes. A runtime that is blocked, not driven
///    or ended must not delay callers on other runtimes. Connections that depend on the runtime that made
///    them are kept [per runtime](crate::backend::PerRuntime).
/// 9. **The end of a lease takes effect soon.** Within a second after the end of a lease, the lock can be
///    granted to another claim, and `inspect` no longer shows it as held. A server that counts in whole
///    seconds rounds its leases up, never down; the rounding is part of that second. The time left may be
///    shown in whole seconds.
/// 10. **Few round trips.** An acquire of a free lock takes two round trips at most. Even if a round trip
///     takes two fifths of a lease, a lock can be acquired and kept.
/// 11. **A lost answer is not an error by itself.** When a connection breaks, idempotent requests are
///     repeated on a new one, within the limits of rule 6. If there is no answer in time, the error is
///     [`Unreachable`](crate::ErrorKind::Unreachable), [`UnknownOutcome`](crate::ErrorKind::UnknownOutcome)
///     or [`TimedOut`](crate::ErrorKind::TimedOut), never [`Lost`](crate::ErrorKind::Lost). If the server
///     stops for less than the lease, holders keep their locks and waiters keep waiting. After a restart of
///     the server, clients go on working.
/// 12. **A release that is repeated** within one call of [`release`](Self::release), and finds nothing,
///     returns [`Released`](crate::Released::Released) if an earlier copy of it, whose answer was lost, has
///     released the lock, and [`InDoubt`](crate::Released::InDoubt) if that is unknown.
/// 13. **[`inspect`](Self::inspect) is accurate.** It shows the tokens and labels of the holders, and who is
///     next: the first waiters with label and mode, in the order of the queue, without one that has left, was
///     granted the lock, or has given no sign of life ([`LockStatus::waiting`]). A server without a queue
///     shows no waiters. The time for which a lock has been held counts from its grant, and does not start
///     again with a renewal. If the server does not record the grant, it counts from the beginning of the
///     wait, and the documentation of the backend says so. A server that may have forgotten grants may lack a
///     holder; it says so ([`LockStatus::unknown_for`]), and grants nothing meanwhile
///     ([`GracePeriod`](crate::ErrorKind::GracePeriod)).
/// 14. **An acquire that is repeated on a second connection is in doubt.** The backend calls
///     [`Claim::note_in_doubt`] before it sends the acquire again. The first copy may reach the server after
///     the release, and would take the lock although no guard holds it. So `lockcore` repeats the release
///     until the lease of such a copy has ended. The call is not needed if a late copy cannot take the lock.
/// 15. **A validity is not much shorter than its lease.** A grant and a renewal are valid for at least half
///     of [`Claim::ttl`], counted from before the request was sent.
/// 16. **Readers do not starve a writer.** While a writer waits for a lock that readers hold, a new reader
///     with [`Wait::No`](crate::Wait::No) is refused, and a new reader that waits gets the lock after that
///     writer.
/// 17. **One name is one kind of lock at a time**: a mutex or reader-writer lock, or a semaphore with one
///     [limit](crate::Mode::is_same_kind). A claim of another kind than the holders waits like a writer: until
///     all of them have left, and later claims of their kind come after it. If it does not wait, it fails
///     with [`Mode::clash`](crate::Mode::clash). With each refusal a backend calls
///     [`claim.note_in_use(held)?`](Claim::note_in_use), which makes that error and the warning; one with
///     exclusive locks only need not. A name that is not in use can become any kind.
/// 18. **Owner ids are secret**, since anyone who knows one can release its lock. `Debug` of the backend, of
///     its answers and of the [records](Grant::with_record) in its grants does not show them, and the backend
///     does not log them.
/// 19. **Promises are kept.** With [`push`](crate::Requirement::Push), at least half of all waiters are
///     granted a lock within 250 ms after its release. With [`loss_push`](crate::Requirement::LossPush), a
///     holder is notified within five seconds after a forced release. With
///     [`herd_free`](crate::Requirement::HerdFree), a hand-over with 16 waiters takes at most two more than
///     twice the requests of a hand-over with two waiters.
/// 20. **A record is written by the present holder only**, as [`write_record`](Self::write_record) says. It
///     outlives the hold, a restart and a purge. Whoever writes none sends no request for it.
///
/// The shortest lease that a backend allows may be five seconds at most. The conformance suite, the crate
/// `lockwell-conformance`, checks these rules with what the harness offers, except where no case can see a
/// violation: that a release cannot overtake its acquire (rule 3), clocks of clients that differ from the
/// server's (rule 4), a token that is higher without need when an acquire is repeated (rule 2), the round
/// trips of readers and permits (rule 10), the time held of one who had to wait (rule 13), and what the
/// backend logs (rule 18).
///
/// `lockcore` polls the futures of `acquire` and `release` to their ends. If a caller is dropped, its claim
/// is cancelled, and the backend's future moves to a separate task. Only the end of a runtime drops such a
/// future before its end; the keeper then calls `release`.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// The promises of this backend. `lockcore` refuses, before any I/O, a request that needs something else.
    fn capabilities(&self) -> Capabilities;

    /// The servers, as [`ServerUrl::servers`](crate::ServerUrl::servers) writes them, for errors that name
    /// them ([`Error::at`]). `None` if there is no server, as for a file or the memory of this process.
    fn servers(&self) -> Option<&str> {
        None
    }

    /// `async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>>`
    ///
    /// Claims the lock, and waits for as long as [`Claim::wait`] allows. `None`: the lock was still held when
    /// the wait ended or the claim was cancelled. After `None` for a claim that was in a queue, and after an
    /// error, `lockcore` calls `release` in the background. While the claim may wait, it calls this again
    /// instead, for the same claim, after an error that is [retryable](Error::is_retryable). If `acquire` itself
    /// has sent a release that may still arrive, it calls [`Claim::cancel`] before it returns the error: the
    /// claim must not be used again. Then `lockcore` goes on with another claim.
    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>>;

    /// `async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>>`
    ///
    /// Claims several different locks without waiting ([`Wait::No`](crate::Wait::No)), in as few round trips
    /// as the server allows. Returns one answer per claim, in order, with the meaning of `acquire`.
    async fn acquire_each(&self, claims: &[Claim]) -> Vec<Result<Option<Grant>>> {
        join_all(claims.iter().map(|claim| self.acquire(claim))).await
    }

    /// `async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal>`
    ///
    /// Extends many leases in as few round trips as the server allows. Returns one answer per grant, in
    /// order.
    ///
    /// It returns by `until`, which lockcore derives from the validity of the leases. A lease without an
    /// answer by then is [`Unknown`](Renewal::Unknown); the others have their answers. If a part of the
    /// server hangs, such as a node of a cluster, it must not delay the answers of the other parts. After
    /// `until` lockcore drops the future, and all leases count as unknown.
    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal>;

    /// `async fn release(&self, claim: &Claim) -> Result<Released>`
    ///
    /// Releases a claim, whether it was granted, queued, or the outcome is unknown. Idempotent. Never frees
    /// another owner's lock.
    async fn release(&self, claim: &Claim) -> Result<Released>;

    /// `async fn downgrade(&self, grant: &Grant) -> Result<Grant>`
    ///
    /// Turns an exclusive hold into a shared one, in one atomic step at the server: no other writer gets the
    /// lock in between, and readers at the head of the queue are granted the lock. Returns
    /// [`Grant::downgraded`], with a new record if the backend needs one. Owner, token and lease stay the
    /// same. Idempotent. Fails with [`Lost`](crate::ErrorKind::Lost) if the owner does not hold the lock.
    /// Called only if [`Downgrade`](crate::Requirement::Downgrade) is promised.
    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let message = format!("this backend cannot downgrade {}", grant.claim().name());
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// `async fn inspect(&self, name: &LockName) -> Result<LockStatus>`
    ///
    /// Returns the holders of `name`, with their tokens and the times for which they have held it; the number
    /// of waiters, and the first of them ([`LockStatus::waiting`]). If the server may have forgotten holders,
    /// [`LockStatus::unknown_for`] says for how long. However many wait, the answer has at most
    /// [`LockStatus::SHOWN`] of them.
    ///
    /// It is the state at a moment between the call and the answer. So a lock is not shown as held if its
    /// release was answered, to any client, before the call.
    async fn inspect(&self, name: &LockName) -> Result<LockStatus>;

    /// `async fn names(&self) -> Result<Vec<LockName>>`
    ///
    /// Returns the names of all locks that are held now, for display. It may return more names, and may miss
    /// changes while it runs. It changes nothing, and may read all records of the server.
    async fn names(&self) -> Result<Vec<LockName>> {
        Err(Error::new(ErrorKind::Unsupported, "this backend cannot list the locks that are held"))
    }

    /// `async fn examine(&self) -> Result<Vec<Finding>>`
    ///
    /// Checks the server for an operator: whether acknowledged writes are durable, the replication, the
    /// clock, and everything else that can weaken locks. It changes nothing.
    async fn examine(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// `async fn force_release(&self, name: &LockName) -> Result<usize>`
    ///
    /// For operators: releases `name` from all its holders, and returns their number. Their next renewals
    /// return [`Lost`](Renewal::Lost).
    async fn force_release(&self, name: &LockName) -> Result<usize>;

    /// `async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()>`
    ///
    /// Writes a record of the lock. The server looks and writes in one step: whether this very hold is there,
    /// and exclusive. Its claim alone does not tell: a late copy of the acquire can have got another grant after
    /// a forced release. A lease that has ended counts, as long as nobody else has the lock. The server compares
    /// neither clocks nor tokens with those of the record, since tokens can fall.
    ///
    /// Of one hold ([`Grant::hold_id`]) a higher [number](RecordWrite::number) is written, an equal one is
    /// `Ok`, and a lower one changes nothing: see [`RecordWrite::answer`]. lockcore has
    /// [bound](Grant::bind) the grant, and sends one write of a hold at a time. A write is as durable as a
    /// grant. Called only if [`Records`](crate::Requirement::Records) is promised.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) only if the server says so, and [`GracePeriod`](ErrorKind::GracePeriod) where
    /// it grants nothing; the hold goes on then.
    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let _: RecordWrite<'_> = write;
        Err(no_records(grant.claim().name()))
    }

    /// `async fn read_record(&self, name: &LockName, kind: RecordKind, under: Option<&Grant>) -> Result<Option<Record>>`
    ///
    /// Reads a record. `under` a grant, of whatever mode, it returns the last write of the holder before.
    /// Otherwise it may be older. `None`: nothing was written, or it was removed. Called only if
    /// [`Records`](crate::Requirement::Records) is promised.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) may be the answer if the hold is not there, and
    /// [`GracePeriod`](ErrorKind::GracePeriod) while the server may have forgotten it.
    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        let _: (RecordKind, Option<&Grant>) = (kind, under);
        Err(no_records(name))
    }

    /// `async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>>`
    ///
    /// Returns the names of all locks with a record of this kind, for display, like [`names`](Self::names).
    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        let _: RecordKind = kind;
        Err(Error::new(ErrorKind::Unsupported, "this backend has no records"))
    }

    /// `async fn grace_left(&self) -> Result<Option<Duration>>`
    ///
    /// Returns for how long nothing is granted, because the server may have forgotten grants. `None`: it
    /// grants locks. Of several servers it is the longest time.
    async fn grace_left(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    /// `async fn begin_grace(&self) -> Result<Duration>`
    ///
    /// For operators: begins a grace period, as if the server had forgotten its last grants, and returns its
    /// length. Until it is over nothing is granted ([`GracePeriod`](crate::ErrorKind::GracePeriod)), while
    /// holders renew and release. One that is under way begins again. If a part of the servers fails, the
    /// call fails, although the period may have begun at the others. Fails with
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where there are no grace periods.
    async fn begin_grace(&self) -> Result<Duration> {
        Err(Error::new(ErrorKind::Unsupported, "this backend has no grace periods"))
    }

    /// `async fn end_grace(&self) -> Result<()>`
    ///
    /// For operators: says that the servers have forgotten no grant, so that they grant locks from now on.
    /// Fails with [`Unsupported`](crate::ErrorKind::Unsupported) where a grace period cannot be ended.
    async fn end_grace(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "no grace period of this backend can be ended by hand"))
    }

    /// `async fn lost(&self, grant: &Grant)`
    ///
    /// Resolves when the server notifies the client that the grant is lost. Pending for ever if the server
    /// sends no such notifications. Called only if [`LossPush`](crate::Requirement::LossPush) is promised.
    async fn lost(&self, grant: &Grant) {
        let _: &Grant = grant;
        std::future::pending::<()>().await;
    }

    /// `async fn doubted(&self, grant: &Grant)`
    ///
    /// Resolves when the grant has become doubtful, because the connection that keeps it alive is down. The
    /// guard becomes [`Suspect`](crate::LeaseState::Suspect) at once, and a renewal follows. lockcore calls
    /// this again each time. Pending for ever if a grant does not depend on a connection. Called only if
    /// [`LossPush`](crate::Requirement::LossPush) is promised.
    async fn doubted(&self, grant: &Grant) {
        let _: &Grant = grant;
        std::future::pending::<()>().await;
    }

    /// The clock for leases and waits. Only tests use another clock than the machine's.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// `async fn close(&self)`
    ///
    /// Closes the connections and sessions of all runtimes in an orderly way. Locks that are still held end
    /// with their leases.
    async fn close(&self) {}
}

fn no_records(name: &LockName) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this backend has no records, and so none of {name}"))
}
