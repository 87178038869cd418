//! The end of what the library still does in the background.
//!
//! A claim that is given up leaves its queue in the background. A process that ends at once would cut that off, and
//! the dead claim would hold up the queue until the server notices. So lockwell watches its one claim on its way
//! through the backend, and waits until it has been cleaned up.

use std::sync::Arc;
use std::time::Duration;

use lockwell::{
    Capabilities, Claim, DistributedLock, Grant, LockName, LockStatus, Released, Renewal, Result, async_trait,
};
use tokio::sync::watch;

use crate::exit;

/// The longest wait. After that, what is left ends with its lease.
const LIMIT: Duration = Duration::from_secs(1);

/// A backend that knows whether a claim may have left something at the server.
#[derive(Debug)]
pub(crate) struct Watched {
    backend: Arc<dyn DistributedLock>,
    pending: watch::Sender<bool>,
}

/// Tells when nothing is left.
pub(crate) struct Settled(watch::Receiver<bool>);

impl Watched {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>) -> (Arc<Self>, Settled) {
        let (pending, settled) = watch::channel(false);
        (Arc::new(Self { backend, pending }), Settled(settled))
    }
}

impl Settled {
    /// Waits until the claim has been cleaned up, for a moment at most.
    pub(crate) async fn wait(mut self) {
        if tokio::time::timeout(LIMIT, self.0.wait_for(|pending| !pending)).await.is_err() {
            tracing::info!("the claim is still being cleaned up; what it holds ends with its lease");
        }
    }
}

#[async_trait]
impl DistributedLock for Watched {
    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.pending.send_replace(true);
        let answer = self.backend.acquire(claim).await;
        let nothing_done = match &answer {
            Ok(grant) => grant.is_none() && !claim.may_be_queued(),
            Err(error) => exit::status_of(error.kind()) == exit::USAGE,
        };
        self.pending.send_replace(!nothing_done);
        answer
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let answer = self.backend.release(claim).await;
        if answer.is_ok() {
            self.pending.send_replace(false);
        }
        answer
    }

    /// The keeper cleans up where this handle fails.
    fn for_keeper(&self) -> Option<Arc<dyn DistributedLock>> {
        let backend = self.backend.for_keeper()?;
        Some(Arc::new(Self { backend, pending: self.pending.clone() }))
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewal> {
        self.backend.renew(grants).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.backend.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.backend.force_release(name).await
    }

    async fn lost(&self, grant: &Grant) {
        self.backend.lost(grant).await;
    }

    async fn close(&self) {
        self.backend.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use lockwell::{Locks, MemoryLock};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_claim_that_is_given_up_settles() {
        let (backend, settled) = Watched::new(Arc::new(MemoryLock::named("settles")));
        let locks = Locks::new(backend);
        let other = Locks::new(Arc::new(MemoryLock::named("settles")));
        let guard = other.lock("a").await.unwrap();
        let waiting = locks.lock("a").into_future();
        drop(tokio::time::timeout(Duration::from_millis(20), waiting).await);
        assert!(*settled.0.borrow(), "it stood in the queue");
        let begun = Instant::now();
        settled.wait().await;
        assert!(begun.elapsed() < LIMIT);
        assert_eq!(other.inspect("a").await.unwrap().waiters, 0);
        guard.release().await.unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_claim_that_is_refused_at_once_leaves_nothing() {
        let (backend, settled) = Watched::new(Arc::new(MemoryLock::new()));
        let locks = Locks::new(backend);
        let guard = locks.lock("a").await.unwrap();
        assert!(locks.lock("a").try_now().await.unwrap().is_none());
        assert!(!*settled.0.borrow());
        guard.release().await.unwrap();
        assert!(!*settled.0.borrow());
    }
}
