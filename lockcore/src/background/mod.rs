//! The work of a client outside of its users' calls: renewals, deadlines, releases.
//!
//! An application may block or stop its runtime; its locks must not be lost for that. So all this runs on the keeper, a
//! thread of the process that does nothing else.

mod armed;
mod caller_release;
mod lease_set;
mod releases;
mod renewal;
mod under_way;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lease::HeldLock;
use crate::system::KEEPER;
use crate::telemetry::Telemetry;
use crate::{Capabilities, Clock, DistributedLock, Error, ErrorKind, LockName, Operation, Result, Stats};

pub(crate) use armed::Armed;
use caller_release::CallerRelease;
use lease_set::LeaseSet;
pub(crate) use releases::Outcome;
use releases::Releases;
pub(crate) use under_way::{Next, UnderWay};

/// One client of a backend: what its clones, its guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) clock: Clock,
    releases: Arc<Releases>,
    leases: Arc<LeaseSet>,
    closed: AtomicBool,
}

impl Background {
    /// Fails if the keeper thread cannot be started.
    pub(crate) fn start(backend: Arc<dyn DistributedLock>) -> Result<Arc<Self>> {
        let keeper = KEEPER.get()?;
        let capabilities = backend.capabilities();
        let telemetry = Telemetry::new(capabilities.backend());
        let releases = Releases::new(&backend, &telemetry, &keeper);
        Ok(Arc::new(Self {
            capabilities,
            clock: backend.clock(),
            leases: LeaseSet::new(&backend, &telemetry, &keeper, &releases),
            releases,
            telemetry,
            backend,
            closed: AtomicBool::new(false),
        }))
    }

    /// Adds the operation, the backend and the lock to an error.
    pub(crate) fn decorate(&self, error: Error, operation: Operation, name: Option<&LockName>) -> Error {
        let error = error.during(operation).on_backend(self.capabilities.backend());
        match name {
            Some(name) => error.for_lock(name),
            None => error,
        }
    }

    /// Refuses requests after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "this client was closed"));
        }
        Ok(())
    }

    /// Begins to renew a lease.
    pub(crate) fn keep(&self, held: &Arc<HeldLock>) {
        self.leases.insert(held);
    }

    /// Stops renewing a lease.
    pub(crate) fn let_go(&self, held: &HeldLock) {
        self.leases.remove(held);
    }

    /// Sweeps the leases again: one of them may be due earlier than before.
    pub(crate) fn sweep_again(&self) {
        self.leases.sweep_again();
    }

    pub(crate) fn stats(&self) -> Stats {
        self.telemetry.stats(self.leases.len())
    }

    /// Waits for the releases under way, then ends the connections; all within this time.
    pub(crate) async fn close(&self, limit: Duration) -> Result<()> {
        let began = self.clock.now();
        self.closed.store(true, Ordering::Release);
        self.leases.close();
        // The last quarter of the time is for the connections.
        let left = self.releases.drain(began.after(limit / 4 * 3)).await;
        self.releases.close();
        let ended = self.clock.timeout_at(began.after(limit), self.backend.close()).await;
        self.telemetry.close();
        let text = match (left, ended) {
            (0, Some(())) => return Ok(()),
            (0, None) => format!("the connections have not ended within {limit:?}"),
            _ => format!("{left} releases have no answer after {limit:?}: those locks end with their leases"),
        };
        let error = Error::new(ErrorKind::UnknownOutcome, text);
        Err(error.on_backend(self.capabilities.backend()))
    }
}

#[cfg(test)]
mod tests;
