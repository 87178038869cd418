//! A backend that does what a test tells it to.

use async_trait::async_trait;
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, MemoryLock, Moment,
    Released, Renewal, Result,
};

/// The name whose acquires panic, and that whose renewals fail.
pub(crate) const PANICS: &str = "panics";
pub(crate) const DOUBTFUL: &str = "doubtful";

#[derive(Debug, Default)]
pub(crate) struct Odd(MemoryLock);

#[async_trait]
impl DistributedLock for Odd {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        assert_ne!(claim.name().as_str(), PANICS, "as the test wants it");
        self.0.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let mut renewals = self.0.renew(grants, until).await;
        for (grant, renewal) in grants.iter().zip(&mut renewals) {
            if grant.claim().name().as_str() == DOUBTFUL {
                *renewal = Renewal::Unknown(Error::new(ErrorKind::Unreachable, "as the test wants it"));
            }
        }
        renewals
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.0.release(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.0.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.0.force_release(name).await
    }
}
