//! A handle to a held lock, for tasks that use it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::background::{Book, HeldLock, lost_at_work};
use crate::life::Event;
use crate::{Claim, FencingToken, Grant, HoldId, LeaseState, LockName, Loss, Operation, Result};

/// A handle to a held lock. It shows the state of the lock. The lock is released when the guard is dropped,
/// even if handles remain. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct LockHandle {
    lock: Arc<HeldLock>,
    /// Not of the guard, which has the client itself.
    book: Weak<Book>,
}

impl LockHandle {
    pub(super) fn new(lock: Arc<HeldLock>) -> Self {
        Self { lock, book: Weak::new() }
    }

    /// For the use without its guard.
    pub(super) fn of(self, book: Option<&Arc<Book>>) -> Self {
        Self { book: book.map_or_else(Weak::new, Arc::downgrade), ..self }
    }

    /// Its client, if that is still there.
    pub(super) fn client(&self) -> Option<Arc<Book>> {
        self.book.upgrade()
    }

    pub(super) fn lock(&self) -> &Arc<HeldLock> {
        &self.lock
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.grant().claim().name()
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.grant().token()
    }

    /// The identity of the hold: see [`LockGuard::hold_id`](crate::LockGuard::hold_id).
    pub fn hold_id(&self) -> HoldId {
        self.grant().hold_id()
    }

    /// Whether the lock is held now, by the clock. See [`LockGuard::is_held`](crate::LockGuard::is_held).
    pub fn is_held(&self) -> bool {
        self.lock.is_held()
    }

    /// An error of kind [`Lost`](crate::ErrorKind::Lost) if the lock is not held now. Work that cannot be
    /// stopped calls it between its steps. It reads the clock and does no I/O.
    pub fn check(&self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let error = lost_at_work(self.renewal_failure());
        Err(error.during(Operation::Hold).for_lock(self.name()))
    }

    /// Whether the lock is held, in doubt, lost or released.
    pub fn lease_state(&self) -> LeaseState {
        self.lock.lease_state()
    }

    /// Why the last renewal has failed, if none has succeeded since: the cause of a lock that is in doubt, or
    /// was lost because its lease ran out. `None`: no renewal has failed, or the lock was lost in another
    /// way.
    pub fn renewal_failure(&self) -> Option<String> {
        self.lock.failure()
    }

    /// The time left until the lease ends, unless it is renewed.
    pub fn time_left(&self) -> Duration {
        self.lock.time_left()
    }

    /// Reports progress: see [`LockRequest::progress_within`](crate::LockRequest::progress_within). It costs no I/O.
    pub fn progress(&self) {
        self.lock.on(self.lock.clock().now(), Event::Progress);
    }

    /// Resolves when the lock is lost. Pending for ever if it is released instead, so a task that only waits
    /// for this never ends. Wait for the [end](Self::ended) of the hold in such a task.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> Loss {
        match self.lock.ended().await {
            LeaseState::Lost(loss) => loss,
            _ => std::future::pending().await,
        }
    }

    /// Resolves when the hold ends: `Some` if the lock is lost, `None` if it is released.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn ended(&self) -> Option<Loss> {
        match self.lock.ended().await {
            LeaseState::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// The grant of the backend, for helpers that check the lock at the resource.
    pub fn grant(&self) -> &Grant {
        self.lock.grant()
    }

    /// The claim behind the lock.
    pub fn claim(&self) -> &Claim {
        self.grant().claim()
    }
}

impl AsRef<Grant> for LockHandle {
    fn as_ref(&self) -> &Grant {
        self.grant()
    }
}
