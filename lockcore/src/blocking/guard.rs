//! Guards of the blocking API.

use std::fmt;
use std::time::Duration;

use crate::blocking::outside::{check_outside, wait};
use crate::lease::lost_at_work;
use crate::system::OwnRuntime;
use crate::{Clock, FencingToken, LeaseState, LockHandle, LockName, Loss, Mode, Operation, Result};

/// A held lock. Dropping it releases the lock in the background, like [`crate::LockGuard`].
/// [`Locks::close`](super::Locks::close), the last call of a program, waits for such releases.
#[must_use = "if unused the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    held: LockHandle,
    mode: Mode,
    /// Taken when the lock is released.
    guard: Option<crate::LockGuard>,
    runtime: OwnRuntime,
}

impl LockGuard {
    pub(super) fn new(guard: crate::LockGuard, runtime: OwnRuntime) -> Self {
        Self { held: guard.handle(), mode: guard.mode(), guard: Some(guard), runtime }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.held.name()
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token: higher than that of every earlier holder of this name.
    pub fn token(&self) -> FencingToken {
        self.held.token()
    }

    /// Whether the lock is held now, by the clock. It only reads the clock. See [`crate::LockGuard::is_held`].
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Returns an error of kind [`Lost`](crate::ErrorKind::Lost) if the lock is not held now. Call it between
    /// the steps of long work.
    pub fn check(&self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let error = lost_at_work(self.held.renewal_failure());
        Err(error.during(Operation::Acquire).for_lock(self.name()))
    }

    /// The state of the lease.
    pub fn lease_state(&self) -> LeaseState {
        self.held.lease_state()
    }

    /// The time left until the lease ends, unless it is renewed.
    pub fn time_left(&self) -> Duration {
        self.held.time_left()
    }

    /// Waits until the lock is lost, at most for this time: `None` if it is still held then.
    pub fn lost_within(&self, limit: Duration) -> Result<Option<Loss>> {
        // By the machine's clock: a thread that waits here cannot move the clock of a test.
        let lost = async { Clock::system().timeout(limit, self.held.lost()).await };
        wait(&self.runtime, lost)
    }

    /// Reports progress. See [`crate::LockRequest::progress`].
    pub fn progress(&self) {
        self.held.progress();
    }

    /// A handle to the lock that can be cloned and passed to threads. It does not keep the lock.
    pub fn handle(&self) -> LockHandle {
        self.held.clone()
    }

    /// Releases the lock and waits for the server's answer. See [`crate::LockGuard::release`].
    pub fn release(mut self) -> Result<()> {
        match self.guard.take() {
            Some(guard) => released(&self.runtime, guard, crate::LockGuard::release),
            None => Ok(()),
        }
    }
}

/// Releases the lock: in the background within an async runtime, where this thread must not wait.
fn released<G: Send + 'static, R>(runtime: &OwnRuntime, guard: G, release: impl FnOnce(G) -> R) -> Result<()>
where
    R: Future<Output = Result<()>>,
{
    if let Err(error) = check_outside() {
        runtime.drop_there(guard);
        return Err(error);
    }
    runtime.block_on(release(guard))
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.runtime.drop_there(guard);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("lease_state", &self.lease_state())
            .finish_non_exhaustive()
    }
}

/// Several held locks. Dropping it releases all of them. See [`crate::LockAllGuard`].
#[must_use = "if unused the locks are released immediately"]
#[clippy::has_significant_drop]
pub struct LockAllGuard {
    held: Vec<LockHandle>,
    /// Taken when the locks are released.
    guard: Option<crate::LockAllGuard>,
    runtime: OwnRuntime,
}

impl LockAllGuard {
    pub(super) fn new(guard: crate::LockAllGuard, runtime: OwnRuntime) -> Self {
        let held = guard.guards().iter().map(crate::LockGuard::handle).collect();
        Self { held, guard: Some(guard), runtime }
    }

    /// Handles to the locks, in the order of the names.
    pub fn handles(&self) -> &[LockHandle] {
        &self.held
    }

    /// The token of one of the locks; `None` if the name is not among them.
    pub fn token(&self, name: &LockName) -> Option<FencingToken> {
        self.held.iter().find(|held| held.name() == name).map(LockHandle::token)
    }

    /// Whether all locks are held now, by the clock.
    pub fn is_held(&self) -> bool {
        self.held.iter().all(LockHandle::is_held)
    }

    /// Releases all locks and waits for the answers. See [`crate::LockAllGuard::release`].
    pub fn release(mut self) -> Result<()> {
        match self.guard.take() {
            Some(guard) => released(&self.runtime, guard, crate::LockAllGuard::release),
            None => Ok(()),
        }
    }
}

impl Drop for LockAllGuard {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            self.runtime.drop_there(guard);
        }
    }
}

impl fmt::Debug for LockAllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guard).finish()
    }
}
