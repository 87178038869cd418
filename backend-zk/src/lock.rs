//! The implementation of `DistributedLock`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockwell_core::backend::Backoff;
use lockwell_core::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Record, RecordKind, RecordWrite, Released, Renewal, Requirement, Result, ServerUrl,
    async_trait,
};

use crate::client::ClientInner;
use crate::error::no_answer;
use crate::examine;
use crate::lease_table::LeaseTable;
use crate::names::BACKEND;
use crate::options::ZkOptions;
use crate::queue::folders::Folders;
use crate::queue::inspect::{self, QueueEntry};
use crate::queue::node::Node;
use crate::queue::place::Place;
use crate::queue::{held, release, waiter};
use crate::records;
use crate::session::clock::ServerClock;
use crate::session::forked;
use crate::session::four_letters::say_why;
use crate::session::limits::Limits;
use crate::session::pool::Pool;
use crate::session::probe::probe;
use crate::session::runtime::SESSIONS;

/// Locks in ZooKeeper.
///
/// A client has one session, and so one connection, for each length of lease that is in use, or several if
/// the paths of its claims take more than 256 KiB. The sessions run on a separate thread, so a blocked runtime
/// keeps its locks. Dropping the last handle closes the sessions.
pub struct ZkLock {
    pub(crate) inner: Arc<ClientInner>,
}

/// Releases claims that were not renewed: by the same clock, their validity has just ended. And claims that
/// wait, and that nobody polls.
async fn end_leases(inner: Weak<ClientInner>, leases: Arc<LeaseTable<Place>>) {
    while let Some((owner, place)) = leases.expired().await {
        let Some(inner) = inner.upgrade() else { return };
        // Before the row is removed.
        place.note_given_up();
        if place.node().is_some_and(|node| node.was_held()) {
            tracing::info!(lockwell.name = %place.lock, "the lease was not renewed; the lock is released");
        } else {
            tracing::info!(lockwell.name = %place.lock, "nobody polls a request for the lock; its place is given up");
        }
        release::discard(&inner, owner, place);
        // The heartbeats of the sessions are sent by the same thread.
        tokio::task::yield_now().await;
    }
}

impl ZkLock {
    /// Connects, learns the limits of the servers, and creates the base path if it is missing.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the base path has been created.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend(BACKEND);
        let options = Arc::new(ZkOptions::read(url).map_err(context)?);
        let context = |error: Error| context(error.at(options.servers.as_str()));
        forked::check().map_err(context)?;
        SESSIONS.get().map_err(context)?;
        let clock = ServerClock::default();
        let limits = match probe(&options, &clock).await {
            Ok(limits) => limits,
            Err(error) => return Err(context(say_why(&options, error).await)),
        };
        let inner = Arc::new(ClientInner {
            capabilities: capabilities(limits),
            pool: Pool::new(Arc::clone(&options), limits),
            leases: Arc::default(),
            clock,
            folders: Folders::new(),
            options,
        });
        drop(SESSIONS.spawn(end_leases(Arc::downgrade(&inner), Arc::clone(&inner.leases))));
        Ok(Self { inner })
    }

    /// All holders and waiters of the lock, in the order of the queue, including nodes of Curator and kazoo.
    pub async fn queue(&self, name: &LockName) -> Result<Vec<QueueEntry>> {
        self.again(|| inspect::queue(&self.inner, name).boxed()).await
    }

    /// Repeats the request while the connection is being replaced.
    async fn again<'a, T>(&self, ask: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
        let asking = async {
            let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_millis(250));
            loop {
                match ask().await {
                    Err(error) if error.kind() == ErrorKind::Unreachable => pauses.pause().await,
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(self.inner.options.timeout, asking).await.map_err(|_| no_answer())?
    }
}

fn capabilities(limits: Limits) -> Capabilities {
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
            Requirement::FailoverSafe,
            Requirement::Records,
        ])
        .bound_to_session()
        .with_ttl(limits.least, limits.most)
}

#[async_trait]
impl DistributedLock for ZkLock {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities.clone()
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
        release::release(&self.inner, claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let work = held::downgrade(&self.inner, grant);
        let unknown = |_| Error::new(ErrorKind::UnknownOutcome, "no answer: still a writer, or a reader now");
        tokio::time::timeout(self.inner.options.timeout, work).await.map_err(unknown)?
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.again(|| inspect::status(&self.inner, name).boxed()).await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.again(|| examine::names(&self.inner).boxed()).await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        self.again(|| examine::findings(&self.inner).boxed()).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let work = inspect::force_release(&self.inner, name);
        tokio::time::timeout(self.inner.options.timeout, work).await.map_err(|_| no_answer())?
    }

    async fn write_record(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        let work = records::write(grant, write, &self.inner.options.base);
        tokio::time::timeout(self.inner.options.timeout, work).await.map_err(|_| records::unknown())?
    }

    async fn read_record(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.again(|| records::read(&self.inner, name, kind, under).boxed()).await
    }

    async fn records(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.again(|| records::names(&self.inner, kind).boxed()).await
    }

    /// The server reports the loss by the watch on the node; or the timeout of the session became shorter.
    async fn lost(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        tokio::select! {
            () = held::gone(node) => (),
            () = node.session.cut_short() => (),
        }
    }

    /// A broken connection is detected at once. A silent one is detected after about a quarter of the
    /// session's timeout, or half of it if there is one server.
    async fn doubted(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        node.session.disconnected().await;
    }

    async fn close(&self) {
        self.inner.pool.close().await;
    }
}

impl fmt::Debug for ZkLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkLock")
            .field("servers", &self.inner.options.servers)
            .field("base", &self.inner.options.base)
            .finish_non_exhaustive()
    }
}
