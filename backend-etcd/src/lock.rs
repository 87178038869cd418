//! The lock.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, Finding, Grant, LockName, LockStatus, Moment, Operation,
    Record, RecordKind, RecordWrite, Released, Renewal, Requirement, Result, ServerUrl, async_trait,
};

use crate::client::ClientInner;
use crate::keys::{self, folder};
use crate::messages::{KeyValue, Range, below};
use crate::options::EtcdOptions;
use crate::{BACKEND, examine, held, pages, records, waiter};

/// One and a half election timeouts of etcd, which are a second if nobody has changed that, in whole seconds.
/// Where they are longer, the members make leases longer, too.
const SHORTEST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_hours(24);

/// Locks in etcd.
///
/// A waiter watches one key, or, if it is the first that waits for a permit, the keys of all holders. A
/// release revokes the lease, and etcd deletes the key with it. A copy of the claim that arrives later fails,
/// since its lease is gone. A client has one connection for each runtime that uses it, to one of the members,
/// and goes to another when that one does not answer or has lost its majority. All watches of a connection
/// share one stream, and keep-alives a few.
///
/// A renewal counts only if a majority confirms it: a member that acts as the leader, and is not, keeps no
/// lock alive.
///
/// On several members of a release before 3.4.31 or 3.5.13 the lock does not promise
/// [`FailoverSafe`](Requirement::FailoverSafe): a leader that has been replaced may end leases. The release
/// is that of the member that this has connected to first.
pub struct EtcdLock {
    inner: Arc<ClientInner>,
    old_leaders_end_leases: bool,
}

impl EtcdLock {
    /// Connects, and makes sure that a majority of the members answers.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is written.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend(BACKEND);
        let inner = EtcdOptions::read(url).and_then(ClientInner::new).map_err(context)?;
        inner.read_floor().await.map_err(context)?;
        let old_leaders_end_leases = examine::old_leaders_end_leases(&inner).await.map_err(context)?;
        Ok(Self { inner: Arc::new(inner), old_leaders_end_leases })
    }

    /// All claims to a lock, and how many of them hold it.
    async fn queue(&self, name: &LockName) -> Result<(Vec<keys::ClaimKey>, usize)> {
        let folder = folder(&self.inner.options.prefix, name);
        let note = |keys: &mut Vec<KeyValue>, page: Vec<KeyValue>| keys.extend(page);
        let keys = pages::read(&self.inner, below(&folder), note).await?;
        Ok(keys::queue(&keys, &folder))
    }
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal(BACKEND)
            .promising([
                Requirement::Shared,
                Requirement::Permits,
                Requirement::Downgrade,
                Requirement::Fencing,
                Requirement::Fifo,
                Requirement::Push,
                Requirement::LossPush,
                Requirement::HerdFree,
                Requirement::AcrossHosts,
                Requirement::Durable,
                Requirement::Records,
            ])
            .promising((!self.old_leaders_end_leases).then_some(Requirement::FailoverSafe))
            .with_ttl(SHORTEST, LONGEST)
    }

    fn servers(&self) -> Option<&str> {
        Some(&self.inner.options.servers)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        waiter::acquire(&self.inner, claim).await
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        held::renew(&self.inner, grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        held::release(&self.inner, claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        held::downgrade(&self.inner, grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (entries, holding) = self.queue(name).await?;
        let (holding, waiting) = entries.split_at(holding);
        let left = join_all(holding.iter().map(|entry| self.inner.time_left(entry.lease))).await;
        let mut holders = Vec::new();
        for (entry, left) in holding.iter().zip(left) {
            holders.extend(left?.map(|left| entry.holder(left)));
        }
        let status = LockStatus::new(name.clone(), holders, waiting.len());
        Ok(status.waiting(waiting.iter().map(keys::ClaimKey::waits)))
    }

    /// Every lock that has a key has a holder.
    async fn names(&self) -> Result<Vec<LockName>> {
        let prefix = &self.inner.options.prefix;
        let range = Range { keys_only: true, ..below(&format!("{prefix}/")) };
        let note = |names: &mut BTreeSet<LockName>, page: Vec<KeyValue>| {
            names.extend(page.iter().filter_map(|kv| keys::name(prefix, &kv.key)));
        };
        Ok(pages::read(&self.inner, range, note).await?.into_iter().collect())
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        examine::findings(&self.inner).await
    }

    /// Ends the leases of those who hold the lock now: of no one who comes later.
    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let (entries, holding) = self.queue(name).await?;
        let mut freed = 0;
        for answer in join_all(entries[..holding].iter().map(|entry| self.inner.end(entry))).await {
            freed += usize::from(answer? != Released::NotHeld);
        }
        Ok(freed)
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        records::write(&self.inner, grant, write).await
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        _: Option<&Grant>,
    ) -> Result<Option<Record>> {
        records::read(&self.inner, name, kind).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        records::names(&self.inner, kind).await
    }

    async fn lost(&self, grant: &Grant) {
        held::gone(&self.inner, grant).await;
    }

    async fn close(&self) {
        self.inner.close();
    }
}

impl fmt::Debug for EtcdLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLock")
            .field("servers", &self.inner.options.servers)
            .field("prefix", &self.inner.options.prefix)
            .finish_non_exhaustive()
    }
}
