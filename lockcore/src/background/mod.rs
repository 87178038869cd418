//! The work of a client outside of its users' calls: renewals, deadlines, releases.
//!
//! An application may block or stop its runtime; its locks must not be lost for that. So all this runs on the
//! keeper, a thread of the process that does nothing else.

mod acquires;
mod all_clients;
mod armed;
mod caller_release;
mod lease_set;
mod promises;
mod releases;
mod renewal;
mod under_way;

use std::sync::Arc;
use std::time::Duration;

use crate::lease::HeldLock;
use crate::system::KEEPER;
use crate::telemetry::Telemetry;
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, LockName, Operation, Requirement, Result,
    Stats,
};

pub(crate) use acquires::AcquireEntry;
use acquires::Acquires;
pub use all_clients::wait_for_releases;
pub(crate) use armed::Armed;
use caller_release::CallerRelease;
use lease_set::LeaseSet;
use promises::Promises;
pub(crate) use releases::AcquireStatus;
use releases::Releases;
pub(crate) use under_way::UnderWay;

/// After a close, an acquire that has not ended within this time is left to the keeper as well.
const CANCELLED: Duration = Duration::from_millis(100);

/// One client of a backend: what its clones, its guards and the keeper share.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) backend: Arc<dyn DistributedLock>,
    promises: Promises,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) clock: Clock,
    releases: Arc<Releases>,
    leases: Arc<LeaseSet>,
    acquires: Arc<Acquires>,
}

impl Background {
    /// Fails if the keeper thread cannot be started.
    pub(crate) fn start(backend: Arc<dyn DistributedLock>) -> Result<Arc<Self>> {
        let keeper = KEEPER.get()?;
        let capabilities = backend.capabilities();
        let telemetry = Telemetry::new(capabilities.backend());
        let releases = Releases::new(&backend, &telemetry, &keeper);
        all_clients::register(&releases);
        Ok(Arc::new(Self {
            promises: Promises::new(capabilities),
            clock: backend.clock(),
            leases: LeaseSet::new(&backend, &telemetry, &keeper, &releases),
            releases,
            telemetry,
            backend,
            acquires: Arc::default(),
        }))
    }

    /// What the backend promises.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.promises.by(&*self.backend).all
    }

    /// What is left of that for clients whose processes are served in turn.
    pub(crate) fn in_turns(&self) -> &Capabilities {
        &self.promises.by(&*self.backend).in_turns
    }

    /// Whether each task that gets a lock from another has a token of its own.
    pub(crate) fn has_token_blocks(&self) -> bool {
        self.capabilities().promises(Requirement::TokenBlocks)
    }

    /// Adds the operation, the backend with its servers, and the lock to an error.
    pub(crate) fn decorate(&self, error: Error, operation: Operation, name: Option<&LockName>) -> Error {
        let mut error = error.during(operation).on_backend(self.capabilities().backend());
        if let Some(servers) = self.backend.servers() {
            error = error.at(servers);
        }
        match name {
            Some(name) => error.for_lock(name),
            None => error,
        }
    }

    /// Refuses requests after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<()> {
        self.acquires.check_open()
    }

    /// An acquire begins. [`close`](Self::close) cancels it until the entry is dropped. It is refused after a
    /// close.
    pub(crate) fn enter(&self, claim: &Claim) -> Result<AcquireEntry> {
        self.acquires.enter(claim)
    }

    /// Before a failed acquire is answered: a pause, if many releases are under way.
    pub(crate) async fn slow_down(&self) {
        self.releases.slow_down().await;
    }

    /// Begins to renew a lease.
    pub(crate) fn keep(&self, held: &Arc<HeldLock>) {
        self.leases.insert(held, self.capabilities().promises(Requirement::LossPush));
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

    /// Cancels the acquires under way, waits for them and for the releases, then ends the connections; all
    /// within this time.
    pub(crate) async fn close(&self, limit: Duration) -> Result<()> {
        let all = self.clock.limit(limit);
        // The last quarter of the time is for the connections.
        let releasing = self.clock.limit(limit / 4 * 3);
        let cancelling = self.clock.limit(CANCELLED.min(limit / 4));
        self.acquires.close();
        self.leases.close();
        if cancelling.wait_for(self.acquires.drained()).await.is_none() {
            // Their runtimes may not be driven any more.
            for claim in self.acquires.left() {
                self.releases.release_by_keeper(&claim);
            }
            // A request that is on its way may still be granted, and is released then.
            releasing.wait_for(self.acquires.drained()).await;
        }
        let left = self.releases.drain(&releasing).await;
        self.releases.close();
        let ended = all.wait_for(self.backend.close()).await;
        self.telemetry.close();
        let text = match (left, ended) {
            (0, Some(())) => return Ok(()),
            (0, None) => format!("the connections have not ended within {limit:?}"),
            _ => format!("{left} releases have no answer after {limit:?}: those locks end with their leases"),
        };
        let error = Error::new(ErrorKind::UnknownOutcome, text);
        Err(error.on_backend(self.capabilities().backend()))
    }
}

#[cfg(test)]
mod tests;
