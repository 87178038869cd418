//! A host with something between it and the records of its server.

use std::sync::Arc;

use async_trait::async_trait;
use lockwell_core::testing::TestServer;
use lockwell_core::{
    Capabilities, Claim, Clock, DistributedLock, Grant, LockName, LockStatus, Locks, Moment, Record,
    RecordKind, RecordWrite, Released, Renewal, Result,
};

/// What is between.
#[async_trait]
pub(crate) trait Between: std::fmt::Debug + Send + Sync + 'static {
    async fn write(&self, server: &dyn DistributedLock, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        server.write_record(grant, write).await
    }

    async fn read(
        &self,
        server: &dyn DistributedLock,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        server.read_record(name, kind, under).await
    }
}

#[derive(Debug)]
struct Host<B> {
    server: Arc<dyn DistributedLock>,
    between: B,
}

pub(crate) fn host(server: &TestServer, between: impl Between) -> Locks {
    Locks::new(Arc::new(Host { server: server.backend(), between })).unwrap()
}

#[async_trait]
impl<B: Between> DistributedLock for Host<B> {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    fn clock(&self) -> Clock {
        self.server.clock()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.server.acquire(claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        self.server.renew(grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.server.release(claim).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.server.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.server.force_release(name).await
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.between.write(&*self.server, grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.between.read(&*self.server, name, kind, under).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.server.records(kind).await
    }

    async fn lost(&self, grant: &Grant) {
        self.server.lost(grant).await;
    }
}
