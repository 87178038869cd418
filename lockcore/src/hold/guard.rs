//! The guard of a held lock.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::Span;

use super::LockHandle;
use super::hand_off::Slice;
use crate::background::{Book, HeldLock, Stub, UnderWay, lost};
use crate::contract::Class;
use crate::life::{Left, Limits};
use crate::system::poll_once;
use crate::{
    Error, ErrorKind, FencingToken, Grant, HoldId, LeaseState, LockName, Loss, Mode, Operation, Released,
    Result,
};

/// The longest time that a release may take. After that its caller gets an error, and the keeper goes on with
/// it.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// A held lock. Dropping it releases the lock.
///
/// While the guard lives, the keeper thread renews the lease. If that fails, [`lease_state`] becomes
/// `Suspect` and then `Lost`; from the deadline on [`is_held`] is false, and [`lost`] resolves. After that
/// another process may hold the lock: stop the work, and let the resource refuse stale writes by the
/// [`token`].
///
/// # Give it a name
///
/// A guard without a name is dropped at once, and so is that of `let _ = ...`. The compiler warns of the
/// first, and clippy of the second (`let_underscore_must_use`).
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use lockwell_core as lockwell;
/// # async fn example(locks: lockwell::Locks) -> lockwell::Result<()> {
/// locks.lock("orders/42").await?; // an error: the lock is released before the work begins
/// # Ok(()) }
/// ```
///
/// ```
/// #![deny(unused_must_use)]
/// # use lockwell_core as lockwell;
/// # async fn example(locks: lockwell::Locks) -> lockwell::Result<()> {
/// let _guard = locks.lock("orders/42").await?; // held to the end of the block
/// # Ok(()) }
/// ```
///
/// # What drop does, and what it does not promise
///
/// Dropping the guard starts a release in the background and returns at once. On a live runtime the lock is
/// normally free within a round trip. If the runtime is not driven any more, the keeper releases the lock
/// after 100 ms. A failure of the release is not reported. The keeper tries again; at worst the lock is free
/// when its lease ends, since nothing renews the lease any more. The lease of a forgotten guard
/// ([`std::mem::forget`]) is renewed for as long as the process lives. To know that the lock is free, call
/// [`release`] and check the answer.
///
/// If a program ends right after a drop, the release may not have been sent. So it should call
/// [`Locks::close`](crate::Locks::close) at its end, which waits for the releases under way.
///
/// A forked child has no keeper: guards are of no use in it, and must not be dropped there.
///
/// [`lease_state`]: Self::lease_state
/// [`is_held`]: Self::is_held
/// [`lost`]: Self::lost
/// [`token`]: Self::token
/// [`release`]: Self::release
#[must_use = "bind it: `let _guard = ...`; `let _ = ...` releases the lock at once"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    handle: LockHandle,
    /// Taken when the lock is released.
    stub: Option<Stub>,
    /// Where the lock can be handed on to another task of this process.
    slice: Option<Slice>,
    /// The span of the hold.
    span: Span,
}

impl LockGuard {
    pub(crate) fn new(stub: Stub, grant: Grant, class: Class, limits: Limits, slice: Option<Slice>) -> Self {
        let held = Arc::new(HeldLock::new(grant, class, limits, &stub.book().telemetry));
        stub.keep(&held);
        Self { handle: LockHandle::new(held), stub: Some(stub), slice, span: Span::none() }
    }

    /// With a span of the hold, which belongs to whoever gets the guard: it is not part of the acquire.
    pub(crate) fn with_span(mut self) -> Self {
        if let Some(stub) = &self.stub {
            self.span = stub.book().telemetry.hold_span(self.grant(), self.class());
        }
        self
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.handle.grant().claim().mode()
    }

    /// The fencing token: higher than that of every earlier holder of this name.
    pub fn token(&self) -> FencingToken {
        self.handle.token()
    }

    /// The identity of this hold. A resource stores it beside the [`token`](Self::token), and so knows a
    /// repeated write of this holder from the write of another one with the same token. It is not secret.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let guard = lockwell::Locks::in_memory().lock("orders/42").await?;
    /// let written = (guard.token(), guard.hold_id()); // stored with the data
    /// let may_write_again = written == (guard.token(), guard.hold_id());
    /// assert!(may_write_again);
    /// # Ok(()) }
    /// ```
    pub fn hold_id(&self) -> HoldId {
        self.handle.hold_id()
    }

    /// Whether the lock is held now, by the clock. It reads the clock and does no I/O.
    ///
    /// The answer is right for the moment at which the clock was read; a pause may follow. A resource that a
    /// stale holder must never change should check the [`token`](Self::token).
    pub fn is_held(&self) -> bool {
        self.handle.is_held()
    }

    /// An error of kind [`Lost`](ErrorKind::Lost) if the lock is not held now. Work that cannot be stopped
    /// calls it between its steps. It reads the clock and does no I/O.
    pub fn check(&self) -> Result<()> {
        self.handle.check()
    }

    /// Whether the lock is held, in doubt, lost or released.
    pub fn lease_state(&self) -> LeaseState {
        self.handle.lease_state()
    }

    /// Why the last renewal has failed, if none has succeeded since: the cause of a lock that is in doubt, or
    /// was lost because its lease ran out. `None`: no renewal has failed, or the lock was lost in another
    /// way.
    pub fn renewal_failure(&self) -> Option<String> {
        self.handle.renewal_failure()
    }

    /// The time left until the lease ends, unless it is renewed. Zero once the lock is lost.
    pub fn time_left(&self) -> Duration {
        self.handle.time_left()
    }

    /// Resolves when the lock is lost: at the deadline at the latest, even if no answer ever comes from the
    /// server.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> Loss {
        self.handle.lost().await
    }

    /// Reports progress: see [`LockRequest::progress_within`](crate::LockRequest::progress_within). It costs no I/O.
    pub fn progress(&self) {
        self.handle.progress();
    }

    /// A handle that can be cloned and passed to tasks. It shows the state of the lock, but does not keep the
    /// lock.
    pub fn handle(&self) -> LockHandle {
        self.handle.clone().of(self.book())
    }

    /// The grant of the backend, for helpers that check the lock at the resource.
    pub fn grant(&self) -> &Grant {
        self.handle.grant()
    }

    /// Releases the lock and waits for the server's answer.
    ///
    /// A lock that is [passed on](crate::Locks::server_order) to a task of this process is not released, so
    /// there is no answer to wait for. `Ok` then means that the deadline had not passed, and that the server
    /// confirmed the lock at most a slice before. If an operator has taken the lock away meanwhile, the last
    /// task of the slice learns of it, from the answer to its release or from a renewal.
    /// A resource that must know compares [tokens](Self::token); with
    /// [`server_order`](crate::Locks::server_order) nothing is passed on.
    ///
    /// An error of kind [`Lost`](ErrorKind::Lost) means that the lock was not held any more: the work under
    /// it may have overlapped with that of another holder. That is so if the deadline had passed when the
    /// release began, whatever the server answers to it, or if the server says that the claim holds nothing.
    /// Its source is the failure of the last renewal, if there was one. Any other error means that the answer
    /// is missing; the keeper goes on trying in the background, and the lease is not renewed.
    ///
    /// # Cancel safety
    /// The release goes on in the background when this future is dropped; only the answer is lost.
    pub async fn release(mut self) -> Result<()> {
        let Some((stub, left, span)) = self.end_or_hand_on() else { return Ok(()) };
        let book = Arc::clone(stub.book());
        let failure = self.handle.lock().failure();
        let lost = || lost("the lock was lost before it was released", failure);
        let answer = if left.is_none() && !stub.claim().lock_delay().is_zero() {
            stub.release_ended(left, span);
            Ok(Released::NotHeld)
        } else {
            release(&book, stub.release(left.is_some(), span)).await
        };
        let error = match answer {
            // Whatever the server has kept of the claim: since the deadline another may have held the lock.
            _ if left.is_none() => lost(),
            Ok(Released::Released) => return Ok(()),
            Ok(Released::InDoubt | Released::NotHeld) => lost(),
            Err(error) => error,
        };
        Err(book.decorate(error, Operation::Release, Some(self.name())))
    }

    /// Sets limits that count from now.
    pub(crate) fn limit(&self, limits: Limits) {
        if let (Some(stub), true) = (&self.stub, limits != Limits::default()) {
            self.handle.lock().limit(limits);
            stub.book().look_again();
        }
    }

    pub(super) fn class(&self) -> Class {
        self.handle.lock().class()
    }

    pub(super) fn limits(&self) -> Limits {
        self.handle.lock().limits()
    }

    pub(super) fn book(&self) -> Option<&Arc<Book>> {
        self.stub.as_ref().map(Stub::book)
    }

    /// Ends the hold: hands the lock on to a waiting task of this process, or returns the claim that is to be
    /// released, with the span of that.
    fn end_or_hand_on(&mut self) -> Option<(Stub, Option<Left>, Span)> {
        let (stub, left) = self.end()?;
        let stub = match (&self.slice, left) {
            (Some(slice), Some(left)) if left.fresh => slice.to_next(self.grant(), left, stub)?,
            _ => stub,
        };
        let span = stub.book().telemetry.release_span(self.grant(), self.class());
        Some((stub, left, span))
    }

    /// Ends the hold. Returns the rest of the lease too; `None` if it was lost. The claim keeps its turn.
    pub(super) fn end(&mut self) -> Option<(Stub, Option<Left>)> {
        let stub = self.stub.take()?;
        let held = self.handle.lock();
        let (left, change) = held.end(stub.book().clock.now());
        if let Some(state) = change {
            held.announce(state);
        }
        let span = std::mem::replace(&mut self.span, Span::none());
        span.record("lockwell.outcome", if left.is_some() { "released" } else { "lost" });
        Some((stub, left))
    }
}

/// Waits for a release; the keeper goes on if that fails.
async fn release(
    book: &Arc<Book>,
    releasing: impl Future<Output = Result<Released>> + Send + 'static,
) -> Result<Released> {
    let mut releasing = UnderWay::new(book, Vec::new(), releasing);
    // The first poll is without a timer: a backend in memory needs none.
    if let Poll::Ready(answer) = poll_once(&mut releasing).await {
        return answer;
    }
    let in_time = book.clock.timeout(RELEASE_LIMIT, releasing).await;
    in_time.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::UnknownOutcome, "no answer in time; it goes on in the background"))
    })
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.lease_state())
            .finish_non_exhaustive()
    }
}

impl AsRef<Grant> for LockGuard {
    fn as_ref(&self) -> &Grant {
        self.grant()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some((stub, left, span)) = self.end_or_hand_on() {
            stub.release_ended(left, span);
        }
    }
}
