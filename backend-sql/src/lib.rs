//! The SQL lock table of lockwell.

use lockcore::{DistributedLock, Error, ErrorKind, Result, ServerUrl};

macro_rules! placeholder {
    ($($name:ident),*) => { $(
        /// Being written.
        #[derive(Debug)]
        pub struct $name(lockcore::MemoryLock);
        impl $name {
            /// Connects.
            pub async fn connect(_: &ServerUrl) -> Result<Self> {
                Err(Error::new(ErrorKind::Unsupported, "being written"))
            }
        }
        #[lockcore::async_trait]
        impl DistributedLock for $name {
            fn capabilities(&self) -> lockcore::Capabilities { self.0.capabilities() }
            async fn acquire(&self, claim: &lockcore::Claim) -> Result<Option<lockcore::Grant>> { self.0.acquire(claim).await }
            async fn renew(&self, grants: &[lockcore::Grant]) -> Vec<lockcore::Renewal> { self.0.renew(grants).await }
            async fn release(&self, claim: &lockcore::Claim) -> Result<lockcore::Released> { self.0.release(claim).await }
            async fn inspect(&self, name: &lockcore::LockName) -> Result<lockcore::LockStatus> { self.0.inspect(name).await }
            async fn force_release(&self, name: &lockcore::LockName) -> Result<usize> { self.0.force_release(name).await }
        }
    )* };
}
placeholder!(PostgresLock, MySqlLock, SqliteLock);
