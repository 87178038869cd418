//! The implementation of `DistributedLock`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockcore::backend::{Backoff, LeaseTable, valid_until};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Released, Renewal, Requirement, Result, ServerUrl, Wait, async_trait,
};

use crate::child::Child;
use crate::error::no_answer;
use crate::four_letters::say_why;
use crate::guarded::GuardedWrite;
use crate::inspect::{self, QueueEntry, ServerClock};
use crate::limits::Limits;
use crate::node::Node;
use crate::options::Options;
use crate::pool::Pool;
use crate::probe::probe;
use crate::session::{SESSIONS, Session};
use crate::{examine, held, release, waiter};

/// Locks in ZooKeeper.
///
/// A client has one session, and so one connection, for each length of lease that is in use. The sessions run on a
/// separate thread, so a blocked runtime keeps its locks. Dropping the last handle closes the sessions.
pub struct ZkLock {
    inner: Arc<Inner>,
}

/// One client: the state that its calls and its background work share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Arc<Options>,
    pub(crate) pool: Pool,
    /// The nodes of the claims, and the ends of their leases.
    pub(crate) leases: Arc<LeaseTable<Node>>,
    pub(crate) clock: ServerClock,
    capabilities: Capabilities,
}

impl Inner {
    /// The node of this client with this name, even while it is being deleted.
    pub(crate) fn node_of(&self, child: &Child) -> Option<Arc<Node>> {
        let node = self.leases.find(child.owner?);
        node.filter(|node| node.name() == child.name)
    }

    /// The session for a claim. If no server can be reached, this tries again for as long as the claim waits.
    pub(crate) async fn session(&self, claim: &Claim) -> Result<Arc<Session>> {
        let mut pauses = Backoff::new(Duration::from_millis(40), Duration::from_secs(1));
        loop {
            match self.pool.session(claim.ttl()).await {
                Err(error) if error.is_retryable() && claim.wait() != Wait::No => {
                    tracing::info!(error = format!("{error:#}"), "no session; it is tried again");
                    pauses.pause().await;
                }
                answer => return answer,
            }
        }
    }

    /// Starts or extends the lease of a claim that held the lock at `sent`. `None`: the claim is already being
    /// released.
    pub(crate) fn lease(&self, claim: &Claim, node: &Node, sent: Moment) -> Option<Moment> {
        node.note_proven(sent);
        let until = valid_until(sent, claim.ttl());
        self.leases.extend(claim.owner(), until).then(|| until.min(node.session.deadline()))
    }

    /// The grant of a claim that holds the lock.
    pub(crate) fn grant(&self, claim: &Claim, node: &Arc<Node>, sent: Moment) -> Option<Grant> {
        let deadline = self.lease(claim, node, sent)?;
        let grant = Grant::new(claim, node.token(), sent).with_deadline(deadline);
        Some(grant.with_record(Arc::<Node>::clone(node)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.leases.close();
    }
}

/// Releases claims that were not renewed. By the same clock, their validity has just ended.
async fn end_leases(inner: Weak<Inner>, leases: Arc<LeaseTable<Node>>) {
    while let Some((owner, node)) = leases.expired().await {
        let Some(inner) = inner.upgrade() else { return };
        tracing::info!(lock = %node.lock, "the lease was not renewed; the lock is released");
        release::discard(&inner, owner, node);
    }
}

impl ZkLock {
    /// Connects, learns the limits of the servers, and creates the base path if it is missing.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the base path has been created.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend(BACKEND);
        let options = Arc::new(Options::read(url).map_err(context)?);
        SESSIONS.get().map_err(context)?;
        let clock = ServerClock::default();
        let limits = match probe(&options, &clock).await {
            Ok(limits) => limits,
            Err(error) => return Err(context(say_why(&options, error).await)),
        };
        let inner = Arc::new(Inner {
            capabilities: capabilities(limits),
            pool: Pool::new(Arc::clone(&options), limits),
            leases: Arc::default(),
            clock,
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

    /// Writes to ZooKeeper that are executed only if this grant still holds its lock. The servers check that in the
    /// same transaction. That is exclusion without any assumption about time.
    pub fn guarded(&self, grant: &Grant) -> Result<GuardedWrite> {
        GuardedWrite::new(grant)
    }
}

pub(crate) const BACKEND: &str = "zookeeper";

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
        ])
        .bound_to_session()
        .with_ttl(limits.least, limits.most)
}

#[async_trait]
impl DistributedLock for ZkLock {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities.clone()
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

    /// The server reports the loss by the watch on the node; or the timeout of the session became shorter.
    async fn lost(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        tokio::select! {
            () = held::gone(node) => (),
            () = node.session.cut_short() => (),
        }
    }

    /// A broken connection is detected at once. A silent one is detected after about a quarter of the session's
    /// timeout, or half of it if there is one server.
    async fn doubted(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        node.session.disconnected().await;
    }

    async fn close(&self) {
        self.inner.pool.close();
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
