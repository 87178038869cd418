//! Redlock: a majority of independent nodes.
//!
//! Source: the "Distributed Locks with Redis" page of the Redis documentation, with what its critics asked for: a
//! fencing token (see [`tally`]), and a validity that is counted from before the first request.

pub(crate) mod gather;
mod items;
mod node;
mod reinstate;
mod release;
mod renewal;
mod repair;
mod round;
mod settings;
mod tally;
mod waiting;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use lockcore::backend::{Hot, PerRuntime, Waiters};
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Finding, Grant, LockName, LockStatus, Mode,
    Moment, Operation, Released, Renewal, Requirement, Result, ServerUrl, Wait, async_trait,
};
use tokio::sync::Semaphore;

use self::gather::gather;
use self::node::Node;
use self::round::Outcome;
use self::settings::Settings;
use crate::answers::{self, LockView};
use crate::calls::Item;
use crate::check;
use crate::doubts::Demands;
use crate::examine;
use crate::items::inspection;
use crate::keys::Keys;
use crate::wire::Subscriber;

/// How long to wait for slow nodes when a majority has answered a question.
const GRACE: Duration = Duration::from_millis(100);
/// How often a lock is looked at again when some nodes did not answer in time and the others show no holder.
const VIEWS: u32 = 2;
/// The most rounds under way in one client.
const ROUNDS: usize = 128;
/// How often a claim that does not wait tries again when votes were split.
const TRIES: u32 = 5;
/// How often such a claim tries again when too few nodes answered.
const UNREACHABLE_TRIES: u32 = 2;

const NO_PERMITS: &str = "Redlock has no semaphores, since no majority can count: with two permits at each of the nodes \
                          A, B and C, one holder can have A and B, a second B and C, a third A and C";

/// Locks held at a majority of independent Redis nodes.
///
/// Exclusive locks, and those of readers and writers: a writer needs a majority of nodes without a holder, a reader one
/// without a writer, and two majorities share a node. A semaphore does not work like this: with two permits at each of
/// the nodes A, B and C, one holder can have A and B, a second B and C, a third A and C.
///
/// Each runtime that uses it has one connection to each node; the keeper thread is one of them. Made by
/// [`connect`](Self::connect).
pub struct Redlock {
    common: Arc<Common>,
    quorums: PerRuntime<Quorum>,
}

/// What all runtimes of a process share.
struct Common {
    settings: Settings,
    keys: Keys,
    /// The highest token that this client knows of.
    highest: AtomicU64,
}

/// The nodes as one runtime uses them.
struct Quorum {
    shared: Arc<NodesContext>,
    nodes: Vec<Arc<Node>>,
}

/// What all rounds and nodes of one runtime have in common.
struct NodesContext {
    common: Arc<Common>,
    waiters: Arc<Waiters>,
    channel: Arc<str>,
    tickets: AtomicI64,
    hot: Hot,
    /// Bounds the rounds that are under way: more of them would only wait for each other, within their time limits.
    rounds: Semaphore,
}

impl NodesContext {
    /// Repairs a node that has lost its counters, if it is time for that.
    async fn repair_if_due(self: &Arc<Self>, nodes: &[Arc<Node>], index: usize) {
        if nodes[index].wants_repair()
            && let Err(error) = repair::repair(self, nodes, index).await
        {
            let error = format!("{error:#}");
            let node = &self.common.settings.nodes[index].topology;
            tracing::warn!(?node, error, "this node cannot be repaired yet: no vote");
        }
    }
}

impl Redlock {
    /// Connects to the nodes at this address, and checks them. A majority must answer.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let context = |error: Error| error.during(Operation::Connect).on_backend("redlock");
        let settings = Settings::read(url).map_err(context)?;
        let keys = Keys::new(&settings.options.namespace, false);
        let common = Common { settings, keys, highest: AtomicU64::new(0) };
        let redlock = Self { common: Arc::new(common), quorums: PerRuntime::new() };
        redlock.quorum()?.check().await.map_err(context)?;
        Ok(redlock)
    }

    fn quorum(&self) -> Result<Arc<Quorum>> {
        self.quorums.get(|| Quorum::new(&self.common))
    }
}

impl Quorum {
    fn new(common: &Arc<Common>) -> Self {
        let waiters = Waiters::new();
        let channel: Arc<str> = common.keys.channel(format_args!("{:032x}", waiters.client())).into();
        let settings = &common.settings;
        let node = |address: &crate::address::Address| {
            let subscriber =
                Subscriber { waiters: Arc::clone(&waiters), channel: Arc::clone(&channel), generation: 0 };
            let note = common.keys.whole_note();
            Arc::new(Node::new(address.clone(), subscriber, note, settings))
        };
        let nodes = settings.nodes.iter().map(node).collect();
        let shared = NodesContext {
            common: Arc::clone(common),
            waiters,
            channel,
            tickets: AtomicI64::new(1),
            hot: Hot::new(),
            rounds: Semaphore::new(ROUNDS),
        };
        Self { shared: Arc::new(shared), nodes }
    }

    fn majority(&self) -> usize {
        tally::majority(self.nodes.len())
    }

    /// Connects to the nodes: a majority at least, and none that refuses us.
    async fn check(&self) -> Result<()> {
        let settings = &self.shared.common.settings;
        let limit = settings.options.timeout;
        let examined = self.nodes.iter().map(|node| async move {
            let generation = node.generation(limit).await?;
            check::rights(node.calls.wire(), &self.shared.common.keys, &[], limit).await?;
            node.examine(generation, limit, settings.longest_ttl).await
        });
        let (mut runs, mut missing, mut forgetful) = (Vec::new(), None, 0);
        let examined = gather(examined, self.majority(), GRACE).await;
        for (answer, address) in examined.into_iter().zip(&settings.nodes) {
            match answer.unwrap_or_else(|| Err(crate::error::no_answer(None))) {
                Ok(right) => {
                    let (run, votes_from) = (Arc::clone(&right.run_id), right.votes_from);
                    if !run.is_empty() && runs.contains(&run) {
                        let text = format!(
                            "{:?} is a node that is named twice, under two addresses",
                            address.topology
                        );
                        return Err(Error::new(ErrorKind::InvalidInput, text));
                    }
                    runs.push(run);
                    forgetful += usize::from(!right.keeps);
                    if !votes_from.has_passed() {
                        let wait = votes_from.remaining();
                        tracing::warn!(node = %address.topology, ?wait, "this node may have forgotten locks: no vote yet");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tracing::warn!(node = %address.topology, "this node cannot be reached");
                    missing = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if settings.create {
            for index in 0..self.nodes.len() {
                self.shared.repair_if_due(&self.nodes, index).await;
            }
        }
        if runs.len() < self.majority() {
            let text = format!("{} of {} nodes answer: no majority", runs.len(), self.nodes.len());
            let error = Error::new(ErrorKind::Unreachable, text);
            return Err(match missing {
                Some(cause) => error.with_source(format!("{cause:#}")),
                None => error,
            });
        }
        if settings.options.strict && forgetful > 0 {
            let text = "strict=true, and a node does not write every change to its disk (appendfsync always), or the \
                        user lacks the rights to INFO and CONFIG GET that would tell";
            return Err(Error::new(ErrorKind::Misconfigured, text));
        }
        Ok(())
    }

    async fn try_now(&self, claim: &Claim) -> Result<Option<Grant>> {
        let mut limit = self.shared.common.settings.node_timeout(claim.ttl());
        let mut tries = 0;
        loop {
            match round::run(&self.shared, &self.nodes, claim, None, limit).await {
                Outcome::Granted(grant) => return Ok(Some(grant)),
                Outcome::Held(_) => return Ok(None),
                Outcome::NoVoteYet(error) => return Err(error),
                Outcome::Unreachable(error) if tries == UNREACHABLE_TRIES || !error.is_retryable() => {
                    return Err(error);
                }
                Outcome::Unreachable(_) => {
                    tries += 1;
                    limit = waiting::longer(limit, claim.ttl());
                }
                Outcome::Split if tries == TRIES => return Ok(None),
                Outcome::Split => {
                    tries += 1;
                    tokio::time::sleep(waiting::split_pause(tries)).await;
                }
            }
        }
    }

    /// Asks all nodes with the same item, and returns the answers of those that answer in time, at least a majority.
    async fn ask_all(&self, item: impl Fn() -> Item) -> Result<Vec<redis::Value>> {
        let limit = self.shared.common.settings.options.timeout.min(Duration::from_secs(1));
        let calls = self.nodes.iter().map(|node| node.calls.call_within(item(), limit));
        let mut last_error = None;
        let mut values = Vec::new();
        for answer in gather(calls, self.majority(), GRACE).await {
            match answer {
                Some(Ok(answer)) => values.push(answer.value),
                Some(Err(error)) => last_error = Some(error),
                None => (),
            }
        }
        match last_error {
            Some(error) if values.len() < self.majority() => Err(error),
            _ => Ok(values),
        }
    }

    /// What a majority of the nodes knows about a lock, at least.
    async fn views(&self, name: &LockName) -> Result<Vec<LockView>> {
        let answers = self.ask_all(|| inspection(&self.shared.common.keys, name)).await?;
        answers.iter().map(answers::lock_view).collect()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let mut views = 0;
        loop {
            let found = self.views(name).await?;
            let nodes = found.len();
            let status = answers::majority_status(name, found, self.majority());
            views += 1;
            // The answers that were not waited for may be missing to a majority.
            if status.is_held() || nodes == self.nodes.len() || views == VIEWS {
                return Ok(status);
            }
        }
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let found = self.views(name).await?;
        let holders: HashSet<_> = found.iter().flat_map(LockView::names).map(str::to_owned).collect();
        let held = answers::majority_status(name, found, self.majority()).holders.len();
        if holders.is_empty() {
            return Ok(0);
        }
        // It names them, so that a repeated call does not free a successor.
        let holders: Vec<_> = holders.into_iter().collect();
        for answer in self.ask_all(|| self.shared.requests().force(name, &holders)).await? {
            for notification in answers::freed_all(&answer, 0)?.1 {
                self.shared.waiters.notify(notification.ticket);
            }
        }
        Ok(held)
    }
}

#[async_trait]
impl DistributedLock for Redlock {
    fn capabilities(&self) -> Capabilities {
        // No permits: see the documentation of the type.
        Capabilities::minimal("redlock")
            .promising([
                Requirement::Shared,
                Requirement::Downgrade,
                Requirement::TokenBlocks,
                Requirement::Fencing,
                Requirement::Push,
                Requirement::HerdFree,
                Requirement::AcrossHosts,
                Requirement::Durable,
                Requirement::FailoverSafe,
            ])
            .with_ttl(Duration::from_millis(200), self.common.settings.longest_ttl)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if let Mode::Permit { .. } = claim.mode() {
            return Err(Error::new(ErrorKind::Unsupported, NO_PERMITS));
        }
        let quorum = self.quorum()?;
        if claim.wait() == Wait::No { quorum.try_now(claim).await } else { quorum.wait_for_turn(claim).await }
    }

    async fn renew(&self, grants: &[Grant], until: Moment) -> Vec<Renewal> {
        match self.quorum() {
            Ok(quorum) => renewal::renew(&quorum.shared, &quorum.nodes, grants, until).await,
            Err(error) => grants.iter().map(|_| Renewal::Unknown(error.duplicate())).collect(),
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.quorum()?.release_claim(claim).await
    }

    async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        self.quorum()?.downgrade(grant).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.quorum()?.inspect(name).await
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        self.quorum()?.force_release(name).await
    }

    /// A held lock is set at a majority of the nodes, so asking a majority of the nodes is enough; nodes that cannot be
    /// reached are left out.
    async fn names(&self) -> Result<Vec<LockName>> {
        let (quorum, limit) = (self.quorum()?, self.common.settings.options.timeout);
        let asked =
            quorum.nodes.iter().map(|node| examine::names(node.calls.wire(), &self.common.keys, limit));
        let answers = gather(asked, quorum.majority(), GRACE).await;
        let (mut names, mut listed, mut last_error) = (Vec::new(), 0, None);
        for answer in answers.into_iter().flatten() {
            match answer {
                Ok(found) => {
                    listed += 1;
                    names.extend(found);
                }
                Err(error) => last_error = Some(error),
            }
        }
        match last_error {
            Some(error) if listed < quorum.majority() => Err(error),
            _ => Ok(names),
        }
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        let (quorum, limit) = (self.quorum()?, self.common.settings.options.timeout);
        // Nodes of Redlock have no replicas that count.
        let demands = Demands { wait_replicas: 0, by_sentinels: false };
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for node in &quorum.nodes {
            let wire = node.calls.wire();
            match examine::examine(wire, demands, limit).await {
                Ok(findings) => found.push((wire, examine::of_node(findings))),
                Err(error) => missing.push(format!("{}: {error:#}", wire.address.topology)),
            }
        }
        let mut findings = examine::of_each(found);
        findings.extend(missing.into_iter().map(|text| {
            Finding::doubtful("node", text, "bring it back: without a majority nobody gets a lock")
        }));
        Ok(findings)
    }

    async fn close(&self) {
        for quorum in self.quorums.take_all() {
            quorum.nodes.iter().for_each(|node| node.calls.wire().close());
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.common.settings.nodes).finish_non_exhaustive()
    }
}
