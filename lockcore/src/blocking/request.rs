//! Requests that block until they have an answer.

use std::future::IntoFuture;
use std::time::Duration;

use super::{LockAllGuard, LockGuard};
use crate::blocking::outside::wait;
use crate::request::{All, One};
use crate::system::OwnRuntime;
use crate::{Error, ErrorKind, ErrorWith, LockHandle, LockName, Result};

/// A request for a lock, with its options: see [`crate::LockRequest`]. Nothing is sent before
/// [`acquire`](Self::acquire), [`try_now`](LockRequest::try_now) or [`run`](LockRequest::run).
#[must_use = "nothing happens until the request is ended by acquire, try_now or run"]
#[derive(Debug)]
pub struct LockRequest<W = One> {
    request: crate::LockRequest<W>,
    runtime: OwnRuntime,
}

impl<W> LockRequest<W> {
    pub(super) fn new(request: crate::LockRequest<W>, runtime: &OwnRuntime) -> Self {
        Self { request, runtime: runtime.clone() }
    }

    fn with(self, change: impl FnOnce(crate::LockRequest<W>) -> crate::LockRequest<W>) -> Self {
        Self { request: change(self.request), runtime: self.runtime }
    }

    /// How long the lock stays taken after its holder has died. See [`crate::LockRequest::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|request| request.ttl(ttl))
    }

    /// How long to wait for the lock at most. See [`crate::LockRequest::wait`].
    pub fn wait(self, span: Duration) -> Self {
        self.with(|request| request.wait(span))
    }

    /// Waits without a limit, whatever the configuration says.
    pub fn wait_forever(self) -> Self {
        self.with(crate::LockRequest::wait_forever)
    }

    /// A human-readable text that names the holder. See [`crate::LockRequest::label`].
    pub fn label(self, label: impl AsRef<str>) -> Self {
        self.with(|request| request.label(label))
    }

    /// The longest hold. See [`crate::LockRequest::max_hold`].
    pub fn max_hold(self, longest: Duration) -> Self {
        self.with(|request| request.max_hold(longest))
    }

    /// Keeps the lock only while progress is reported at least this often. See [`crate::LockRequest::progress`].
    pub fn progress(self, at_least_every: Duration) -> Self {
        self.with(|request| request.progress(at_least_every))
    }

    /// The lock delay after a holder that died. See [`crate::LockRequest::lock_delay`].
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.with(|request| request.lock_delay(delay))
    }
}

impl LockRequest<One> {
    /// Waits for the lock.
    pub fn acquire(self) -> Result<LockGuard> {
        let guard = wait(&self.runtime, self.request.into_future())??;
        Ok(LockGuard::new(guard, self.runtime))
    }

    /// Takes the lock if it is free now; `None` if another claim holds it.
    pub fn try_now(self) -> Result<Option<LockGuard>> {
        let guard = wait(&self.runtime, self.request.try_now())??;
        Ok(guard.map(|guard| LockGuard::new(guard, self.runtime)))
    }

    /// Waits for the lock, runs `work` while it is held, and releases it, also if `work` panics.
    ///
    /// Blocking work cannot be stopped when the lock is lost: let it check [`LockHandle::is_held`]. If the lock was
    /// lost, the call fails with [`Lost`](ErrorKind::Lost) at the end of the work; the error contains its
    /// [value](ErrorWith::into_left).
    pub fn run<T>(self, work: impl FnOnce(&LockHandle) -> T) -> Result<T, ErrorWith<T>> {
        let guard = self.acquire()?;
        let held = guard.handle();
        let value = work(&held);
        let released = match guard.check() {
            Ok(()) => guard.release(),
            lost => lost,
        };
        match released {
            Err(error) if error.kind() == ErrorKind::Lost => Err(ErrorWith::new(error, Some(value))),
            // The work was done under the lock. The keeper repeats a release that failed.
            _ => Ok(value),
        }
    }
}

impl LockRequest<All> {
    /// Adds names that are locked for reading. See [`crate::LockRequest::reading`].
    pub fn reading<I>(self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        self.with(|request| request.reading(names))
    }

    /// Waits for all locks.
    pub fn acquire(self) -> Result<LockAllGuard> {
        let guard = wait(&self.runtime, self.request.into_future())??;
        Ok(LockAllGuard::new(guard, self.runtime))
    }

    /// Takes the locks if all are free now; `None` if another claim holds one of them.
    pub fn try_now(self) -> Result<Option<LockAllGuard>> {
        let guard = wait(&self.runtime, self.request.try_now())??;
        Ok(guard.map(|guard| LockAllGuard::new(guard, self.runtime)))
    }
}
