//! The backend as `lockcore` sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockcore::backend::Backoff;
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Moment,
    Operation, Released, Renewal, Result, ServerUrl, async_trait,
};
use zookeeper_client::{self as zk, EventType};

use crate::clock::ServerClock;
use crate::error::{Fate, fate, no_answer};
use crate::four_letters::say_why;
use crate::guarded::GuardedWrite;
use crate::inspect::{self, Place};
use crate::node::Node;
use crate::options::{Options, Recipe};
use crate::pool::Pool;
use crate::probe::{Limits, probe};
use crate::shared::Shared;
use crate::{acquire, downgrade, examine, release, renew, simple, thread};

/// Locks in ZooKeeper.
///
/// One session, and so one connection, for each length of lease that is in use. The sessions live on a thread of their
/// own, so the locks outlive a blocked runtime. Dropping the last handle closes the sessions.
pub struct ZkLock {
    shared: Arc<Shared>,
}

impl ZkLock {
    /// Connects, learns what the servers allow, and makes the base path where it is missing.
    ///
    /// # Cancel safety
    /// Cancel safe: at worst the base path has been made.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend(BACKEND);
        let options = Arc::new(Options::read(url).map_err(context)?);
        thread::start().map_err(context)?;
        let clock = ServerClock::default();
        let limits = match probe(&options, &clock).await {
            Ok(limits) => limits,
            Err(error) => return Err(context(say_why(&options, error).await)),
        };
        let shared = Shared {
            capabilities: capabilities(&options, limits),
            pool: Pool::new(Arc::clone(&options), limits),
            table: crate::node::Table::default(),
            clock,
            options,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Everybody who holds the lock or waits for it, in the order of the queue: Curator's and kazoo's nodes, too.
    pub async fn queue(&self, name: &LockName) -> Result<Vec<Place>> {
        self.again(|| inspect::queue(&self.shared, name).boxed()).await
    }

    /// Looks again while the connection is being replaced.
    async fn again<'a, T>(&self, look: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
        let looking = async {
            let mut pauses = Backoff::new(Duration::from_millis(5), Duration::from_millis(250));
            loop {
                match look().await {
                    Err(error) if error.kind() == ErrorKind::Unreachable => pauses.pause().await,
                    answer => return answer,
                }
            }
        };
        tokio::time::timeout(self.shared.options.timeout, looking).await.map_err(|_| no_answer())?
    }

    /// Writes to ZooKeeper that are done only if this grant still holds its lock: checked by the servers, in the same
    /// transaction. That is exclusion without any assumption about time.
    pub fn guarded(&self, grant: &Grant) -> Result<GuardedWrite> {
        GuardedWrite::new(grant)
    }
}

const BACKEND: &str = "zookeeper";

fn capabilities(options: &Options, limits: Limits) -> Capabilities {
    let queue = options.recipe != Recipe::Simple;
    let mut promised = Capabilities::minimal(BACKEND);
    promised.shared = queue;
    promised.permits = queue;
    promised.downgrade = queue;
    promised.fencing = true;
    promised.fifo = queue;
    promised.push = true;
    promised.loss_push = true;
    promised.herd_free = queue;
    promised.across_hosts = true;
    promised.durable = true;
    promised.failover_safe = true;
    promised.session_bound = true;
    promised.min_ttl = limits.least;
    promised.max_ttl = limits.most;
    promised
}

#[async_trait]
impl DistributedLock for ZkLock {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.shared.options.recipe {
            Recipe::Queue(form) => acquire::acquire(&self.shared, claim, form).await,
            Recipe::Simple => simple::acquire(&self.shared, claim).await,
        }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        renew::renew(&self.shared, grants, until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        release::release(&self.shared, claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let work = downgrade::downgrade(&self.shared, grant);
        let unknown = |_| Error::new(ErrorKind::UnknownOutcome, "no answer: a writer still, or a reader");
        tokio::time::timeout(self.shared.options.timeout, work).await.map_err(unknown)?
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.again(|| inspect::status(&self.shared, name).boxed()).await
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.again(|| examine::names(&self.shared).boxed()).await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        Ok(examine::findings(&self.shared))
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let work = inspect::force_release(&self.shared, name);
        tokio::time::timeout(self.shared.options.timeout, work).await.map_err(|_| no_answer())?
    }

    /// The server says so by the watch on the node. One that was not set while the claim waited is set only after some
    /// time, so that locks which are held shortly do not pay for it.
    async fn lost(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        tokio::select! {
            () = gone(node) => (),
            () = node.session.cut_short() => (),
        }
    }

    /// A connection that breaks is noticed at once, a silent one after a quarter of the session's timeout or so, or
    /// half of it if there is one server.
    async fn doubted(&self, grant: &Grant) {
        let Some(node) = grant.record::<Node>() else { return std::future::pending().await };
        node.session.disconnected().await;
    }

    async fn close(&self) {
        self.shared.pool.close();
    }
}

/// Resolves when the server says that the node is gone.
async fn gone(node: &Node) {
    let pause = (node.session.timeout() / 8).min(Duration::from_millis(250));
    loop {
        let Some(event) = node.event().await else {
            tokio::time::sleep(pause).await;
            match node.session.client.get_and_watch_data(&node.path).await {
                Ok((_, stat, news)) if stat.czxid == node.czxid => {
                    node.watched_by(news);
                }
                Ok(_) | Err(zk::Error::NoNode) => return,
                Err(error) if fate(&error) == Fate::SessionOver => return,
                Err(_) => (),
            }
            continue;
        };
        if matches!(event.event_type, EventType::NodeDeleted | EventType::Session) {
            return;
        }
    }
}

impl fmt::Debug for ZkLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkLock")
            .field("servers", &self.shared.options.servers)
            .field("base", &self.shared.options.base)
            .finish_non_exhaustive()
    }
}
