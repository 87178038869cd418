//! The same locks for programs without async, with blocking calls.
//!
//! ```
//! use std::time::Duration;
//! use lockcore::blocking::Locks;
//!
//! # fn main() -> lockcore::Result<()> {
//! let locks = Locks::in_memory()?;
//! let guard = locks.lock("backup").wait(Duration::from_secs(5)).acquire()?;
//! // Blocking work of any length: a thread of lockwell renews the lease.
//! guard.check()?;
//! guard.release()?;
//! locks.close()
//! # }
//! ```
//!
//! Requests run on the thread `lockwell-blocking`, which has its own runtime. All clients of the process share this
//! thread; the first client starts it. Each call blocks its own thread until there is an answer.
//!
//! # Not within an async runtime
//!
//! A blocking call would stop a thread of the runtime and all tasks on it. So calls within a runtime fail with an error
//! of kind [`Unsupported`](crate::ErrorKind::Unsupported), even in `spawn_blocking`. Async programs use
//! [`crate::Locks`], in `spawn_blocking` with `Handle::current().block_on(..)`. Guards may be dropped anywhere.

mod guard;
mod outside;
mod request;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::outside::wait;
use crate::request::All;
use crate::system::{OwnRuntime, SharedRuntime};
use crate::{Capabilities, Error, LockName, LockStatus, Result, Stats};

pub use guard::{LockAllGuard, LockGuard};
pub use request::LockRequest;

/// The thread on which requests run.
static RUNTIME: SharedRuntime = SharedRuntime::new("lockwell-blocking");

/// A client of one lock server with blocking calls. It is cheap to clone. See [`crate::Locks`] for the details.
#[derive(Clone, Debug)]
pub struct Locks {
    locks: crate::Locks,
    runtime: OwnRuntime,
}

impl Locks {
    /// Waits for a future that connects a client, such as that of `connect`.
    ///
    /// Fails if the future fails, within an async runtime, and if the operating system refuses a thread.
    pub fn connect_by(connecting: impl Future<Output = Result<crate::Locks>>) -> Result<Self> {
        let runtime = RUNTIME.get()?;
        let locks = wait(&runtime, connecting)??;
        Ok(Self { locks, runtime })
    }

    /// Wraps a client. Both can be used side by side.
    ///
    /// Fails if the operating system refuses a thread.
    pub fn new(locks: crate::Locks) -> Result<Self> {
        Ok(Self { locks, runtime: RUNTIME.get()? })
    }

    /// A client of a new in-memory backend: see [`crate::Locks::in_memory`].
    ///
    /// Fails if the operating system refuses a thread.
    pub fn in_memory() -> Result<Self> {
        Self::new(crate::Locks::new(Arc::new(crate::MemoryLock::new()))?)
    }

    /// The async client, for functions without a blocking call.
    pub fn as_async(&self) -> &crate::Locks {
        &self.locks
    }

    /// What the backend promises.
    pub fn capabilities(&self) -> &Capabilities {
        self.locks.capabilities()
    }

    /// A request for the exclusive lock.
    pub fn lock<N>(&self, name: N) -> LockRequest
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        LockRequest::new(self.locks.lock(name), &self.runtime)
    }

    /// A request for the writer's side of a reader-writer lock. The same as [`lock`](Self::lock).
    pub fn write<N>(&self, name: N) -> LockRequest
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.lock(name)
    }

    /// A request for the reader's side of a reader-writer lock.
    pub fn read<N>(&self, name: N) -> LockRequest
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        LockRequest::new(self.locks.read(name), &self.runtime)
    }

    /// A request for one of `limit` permits of a semaphore.
    pub fn permit<N>(&self, name: N, limit: u32) -> LockRequest
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        LockRequest::new(self.locks.permit(name, limit), &self.runtime)
    }

    /// A request for several locks: all of them or none. See [`crate::Locks::lock_all`].
    pub fn lock_all<I>(&self, names: I) -> LockRequest<All>
    where
        I: IntoIterator,
        I::Item: TryInto<LockName, Error: Into<Error>>,
    {
        LockRequest::new(self.locks.lock_all(names), &self.runtime)
    }

    /// Who holds a lock and how many wait. See [`crate::Locks::inspect`].
    pub fn inspect<N>(&self, name: N) -> Result<LockStatus>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        wait(&self.runtime, self.locks.inspect(name))?
    }

    /// Releases a lock from all its holders. See [`crate::Locks::force_release`].
    pub fn force_release<N>(&self, name: N) -> Result<usize>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        wait(&self.runtime, self.locks.force_release(name))?
    }

    /// Counters of this client and its clones.
    pub fn stats(&self) -> Stats {
        self.locks.stats()
    }

    /// Waits until all releases under way have their answers, for five seconds at most. It is the last call of a
    /// program. See [`crate::Locks::close`].
    pub fn close(self) -> Result<()> {
        wait(&self.runtime, self.locks.close())?
    }

    /// [Closes](Self::close) the client within this time.
    pub fn close_within(self, limit: Duration) -> Result<()> {
        wait(&self.runtime, self.locks.close_within(limit))?
    }
}

#[cfg(test)]
mod tests;
