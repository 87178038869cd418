//! A lock that belongs to a session, a connection or a task of its client, as the locks of some servers do,
//! with one defect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::backend::{
    Capabilities, Claim, Clock, DistributedLock, Grant, LockName, LockStatus, MemoryLock, Moment, OwnerId,
    Released, Renewal, Result, async_trait,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::{runtime, task};

use crate::defect::Defect;
use crate::lock;
use lockwell_conformance::{local_runtime, on_a_thread};

/// How long a request is on its way.
const TRAVEL: Duration = Duration::from_millis(1);
/// How long the server keeps a lock whose lease has not been set yet.
const WITHOUT_A_LEASE: Duration = Duration::from_secs(3600);

/// Where a request comes from: a runtime has a connection of its own.
type Origin = (Option<runtime::Id>, Option<task::Id>);

fn origin() -> Origin {
    (Handle::try_current().ok().map(|runtime| runtime.id()), task::try_id())
}

/// The session of one client. All clients have one server.
#[derive(Debug)]
pub(crate) struct Session {
    defect: Defect,
    server: Arc<MemoryLock>,
    clock: Clock,
    /// What it holds, and where that was asked for.
    held: Mutex<HashMap<OwnerId, (Grant, Origin)>>,
    /// Claims that are known by another claim at the server.
    aliases: Mutex<HashMap<OwnerId, Claim>>,
    labels: Mutex<HashMap<LockName, String>>,
}

impl Session {
    pub(crate) fn new(defect: Defect, server: &Arc<MemoryLock>) -> Self {
        Self {
            defect,
            server: Arc::clone(server),
            clock: server.clock(),
            held: Mutex::default(),
            aliases: Mutex::default(),
            labels: Mutex::default(),
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    /// What this session holds of a name.
    fn own(&self, name: &LockName) -> Option<Grant> {
        lock(&self.held)
            .values()
            .find(|(grant, _)| grant.claim().name() == name)
            .map(|(grant, _)| grant.clone())
    }

    async fn release_others(&self, claim: &Claim) -> Result<()> {
        let others: Vec<_> = lock(&self.held).values().map(|(grant, _)| grant.claim().clone()).collect();
        for other in others.iter().filter(|other| other.name() != claim.name()) {
            self.server.release(other).await?;
        }
        Ok(())
    }

    /// Takes the lock first and sets its lease with a second request. Only what is complete is remembered.
    async fn in_two_steps(&self, claim: &Claim) -> Result<Option<Grant>> {
        let label = claim.label().into();
        let alias = Claim::new(claim.name().clone(), claim.mode(), WITHOUT_A_LEASE, claim.wait(), label)
            .with_clock(self.clock.clone());
        let Some(grant) = self.served(alias.clone()).await? else { return Ok(None) };
        self.clock.sleep(TRAVEL).await;
        lock(&self.aliases).insert(claim.owner(), alias);
        Ok(Some(Grant::new(claim, grant.last_token(), self.clock.now())))
    }

    /// The server serves a claim, whether its client is still there or not.
    async fn served(&self, claim: Claim) -> Result<Option<Grant>> {
        let (answer, answered) = oneshot::channel();
        let server = Arc::clone(&self.server);
        on_a_thread(&self.clock, move || {
            let runtime = local_runtime().expect("a runtime");
            // Nobody hears it if the client has gone.
            drop(answer.send(runtime.block_on(server.acquire(&claim))));
        });
        answered.await.expect("an answer")
    }

    /// Whether the server takes the release for that of somebody else.
    fn is_foreign(&self, claim: &Claim) -> bool {
        let (runtime, task) = origin();
        let held = lock(&self.held);
        let Some((_, taken)) = held.get(&claim.owner()) else { return false };
        match self.defect {
            Defect::BelongsToItsConnection => taken.0 != runtime,
            Defect::BelongsToItsTask => taken.1 != task,
            _ => false,
        }
    }
}

#[async_trait]
impl DistributedLock for Session {
    fn capabilities(&self) -> Capabilities {
        self.server.capabilities()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.defect {
            Defect::IsReentrant => {
                if let Some(own) = self.own(claim.name()) {
                    return Ok(Some(Grant::new(claim, own.last_token(), self.clock.now())));
                }
            }
            Defect::HoldsOneLock => self.release_others(claim).await?,
            Defect::SetsTheLeaseLater => return self.in_two_steps(claim).await,
            _ => (),
        }
        let answer = self.server.acquire(claim).await?;
        if let Some(grant) = &answer {
            lock(&self.held).insert(claim.owner(), (grant.clone(), origin()));
        }
        Ok(answer)
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        let known = |grant: &Grant| {
            let alias = lock(&self.aliases).get(&grant.claim().owner()).cloned();
            alias.map_or_else(|| grant.clone(), |alias| Grant::new(&alias, grant.token(), grant.sent()))
        };
        self.server.renew(&grants.iter().map(known).collect::<Vec<_>>(), until).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if self.is_foreign(claim) {
            return Ok(Released::Released);
        }
        if self.is(Defect::ForgetsWhatMoves) {
            let began = task::try_id();
            self.clock.sleep(TRAVEL).await;
            if task::try_id() != began {
                return Ok(Released::Released);
            }
        }
        let alias = lock(&self.aliases).remove(&claim.owner());
        lock(&self.held).remove(&claim.owner());
        self.server.release(alias.as_ref().unwrap_or(claim)).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.server.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let mut status = self.server.inspect(name).await?;
        if let Some(holder) = status.holders.first_mut().filter(|_| self.is(Defect::RemembersTheFirstHolder))
        {
            let mut labels = lock(&self.labels);
            holder.label = labels.entry(name.clone()).or_insert_with(|| holder.label.clone()).clone();
        }
        Ok(status)
    }

    async fn names(&self) -> Result<Vec<LockName>> {
        self.server.names().await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.server.force_release(name).await
    }
}
