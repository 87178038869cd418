//! Redlock: a majority of independent nodes.
//!
//! Source: the "Distributed Locks with Redis" page of the Redis documentation, with what its critics asked for: a
//! fencing token (see [`tally`]), and belief that is counted from before the first request.

mod gather;
mod node;
mod renewal;
mod repair;
mod round;
mod settings;
mod tally;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::seats::Seats;
use lockcore::{
    Capabilities, Claim, DistributedLock, Error, ErrorKind, Grant, LockName, LockStatus, Mode, Operation,
    Released, Renewal, Result, ServerUrl, Wait, async_trait,
};
use tokio::sync::{RwLock, Semaphore};

use self::gather::gather;
use self::node::Node;
use self::round::Outcome;
use self::settings::Settings;
use crate::answers::{self, Freed};
use crate::check;
use crate::keys::Keys;
use crate::lane::Item;
use crate::script::{FORCE, INSPECT, RELEASE};
use crate::wire::Ear;

/// How long slow nodes are waited for when a majority has answered a question.
const GRACE: Duration = Duration::from_millis(100);
/// How often is looked again when some nodes did not answer in time and the others show no holder.
const LOOKS: u32 = 2;
/// The most rounds under way in one client.
const ROUNDS: usize = 128;
/// How often a claim that does not wait tries again when votes were split.
const TRIES: u32 = 5;
/// How often it tries again when too few nodes answered.
const DARK_TRIES: u32 = 2;

/// Locks held at a majority of independent Redis nodes.
///
/// It holds one connection to each node, and one more for the keeper thread. Made by [`connect`](Self::connect).
pub struct Redlock {
    shared: Arc<Shared>,
    nodes: Vec<Arc<Node>>,
}

struct Shared {
    settings: Settings,
    keys: Keys,
    seats: Arc<Seats>,
    channel: Arc<str>,
    tickets: AtomicI64,
    /// The highest token that this client knows of.
    highest: AtomicU64,
    /// Bounds the rounds that are under way: more of them would only wait for each other, on their time.
    rounds: Semaphore,
    /// Held to write while a lock is set again at a node that lost it, to read while one is released, so that the first
    /// cannot undo the second.
    planting: RwLock<()>,
}

impl Shared {
    /// A waiter's seat at one node: each node rings a bell of its own.
    fn seat(&self, ticket: i64, node: usize) -> String {
        format!("{}:{}", self.channel, bell(ticket, node))
    }

    /// Repairs a node that has lost its counters, if it is time for that.
    async fn mend(self: &Arc<Self>, nodes: &[Arc<Node>], index: usize) {
        if nodes[index].wants_repair()
            && let Err(error) = repair::repair(self, nodes, index).await
        {
            let error = format!("{error:#}");
            tracing::warn!(node = ?self.settings.nodes[index].place, error, "this node cannot be repaired yet: no vote");
        }
    }
}

/// The number of the bell that a node rings for a waiter.
fn bell(ticket: i64, node: usize) -> i64 {
    ticket * 64 + i64::try_from(node).unwrap_or_default()
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
        let seats = Seats::new();
        let channel = keys.channel(seats.client.simple()).into();
        let redlock = Self::on(Arc::new(Shared {
            settings,
            keys,
            seats,
            channel,
            tickets: AtomicI64::new(1),
            highest: AtomicU64::new(0),
            rounds: Semaphore::new(ROUNDS),
            planting: RwLock::default(),
        }));
        redlock.check().await.map_err(context)?;
        Ok(redlock)
    }

    fn on(shared: Arc<Shared>) -> Self {
        let settings = &shared.settings;
        let node = |address: &crate::address::Address| {
            let ear = Ear { seats: Arc::clone(&shared.seats), channel: Arc::clone(&shared.channel) };
            Arc::new(Node::new(address.clone(), ear, shared.keys.whole_note(), settings.options.timeout))
        };
        Self { nodes: settings.nodes.iter().map(node).collect(), shared }
    }

    fn majority(&self) -> usize {
        tally::majority(self.nodes.len())
    }

    /// Reaches the nodes: a majority at least, and none that refuses us.
    async fn check(&self) -> Result<()> {
        let settings = &self.shared.settings;
        let limit = settings.options.timeout;
        let looks = self.nodes.iter().map(|node| async move {
            let dialled = tokio::time::timeout(limit, node.lane.wire().link()).await;
            let unreachable = || crate::error::no_answer(None);
            let (_, generation) = dialled.map_err(|_| unreachable())?.map_err(|error| {
                match crate::error::verdict(&error, true) {
                    crate::error::Verdict::Fatal => crate::error::fatal(&error, None),
                    _ => crate::error::no_answer(Some(&error)),
                }
            })?;
            check::rights(node.lane.wire(), &self.shared.keys, &[], limit).await?;
            node.examine(generation, limit, settings.longest_ttl).await
        });
        let (mut runs, mut missing, mut forgetful) = (Vec::new(), None, 0);
        let looks = gather(looks, self.majority(), GRACE).await;
        for (look, address) in looks.into_iter().zip(&settings.nodes) {
            match look.unwrap_or_else(|| Err(crate::error::no_answer(None))) {
                Ok(right) => {
                    let (run, votes_from) = (Arc::clone(&right.run_id), right.votes_from);
                    if !run.is_empty() && runs.contains(&run) {
                        let text =
                            format!("{:?} is a node that is named twice, under two addresses", address.place);
                        return Err(Error::new(ErrorKind::InvalidInput, text));
                    }
                    runs.push(run);
                    forgetful += usize::from(!right.keeps);
                    if !votes_from.has_passed() {
                        let wait = votes_from.remaining();
                        tracing::warn!(node = ?address.place, ?wait, "this node may have forgotten locks: no vote yet");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tracing::warn!(node = ?address.place, "this node cannot be reached");
                    missing = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        for index in 0..self.nodes.len() {
            self.shared.mend(&self.nodes, index).await;
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
        let mut limit = self.shared.settings.node_timeout(claim.ttl());
        let mut tries = 0;
        loop {
            match round::play(&self.shared, &self.nodes, claim, tries + 1, None, limit).await {
                Outcome::Granted(grant) => return Ok(Some(grant)),
                Outcome::Held(_) => return Ok(None),
                Outcome::Dark(error) if tries == DARK_TRIES || !error.is_retryable() => return Err(error),
                Outcome::Dark(_) => {
                    tries += 1;
                    limit = waiting::more_patient(limit, claim.ttl());
                }
                Outcome::Split if tries == TRIES => return Ok(None),
                Outcome::Split => {
                    tries += 1;
                    waiting::back_off(tries).await;
                }
            }
        }
    }

    /// Asks all nodes with the same item, and returns the answers of those that answer in time, at least a majority.
    async fn ask_all(&self, item: impl Fn() -> Item) -> Result<Vec<redis::Value>> {
        let limit = self.shared.settings.options.timeout.min(Duration::from_secs(1));
        let calls = self.nodes.iter().map(|node| node.lane.call_within(item(), limit));
        let mut complaint = None;
        let mut values = Vec::new();
        for answer in gather(calls, self.majority(), GRACE).await {
            match answer {
                Some(Ok(answer)) => values.push(answer.value),
                Some(Err(error)) => complaint = Some(error),
                None => (),
            }
        }
        match complaint {
            Some(error) if values.len() < self.majority() => Err(error),
            _ => Ok(values),
        }
    }
}

#[async_trait]
impl DistributedLock for Redlock {
    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::minimal("redlock");
        promised.fencing = true;
        promised.push = true;
        promised.herd_free = true;
        promised.across_hosts = true;
        promised.durable = true;
        promised.failover_safe = true;
        promised.min_ttl = Duration::from_millis(200);
        promised.max_ttl = self.shared.settings.longest_ttl;
        promised
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        if claim.mode() != Mode::Exclusive {
            return Err(Error::new(ErrorKind::Unsupported, "this backend has exclusive locks only"));
        }
        if claim.wait() == Wait::No { self.try_now(claim).await } else { self.wait_for_turn(claim).await }
    }

    async fn renew(&self, grants: &[Grant]) -> Vec<Renewal> {
        renewal::renew(&self.shared, &self.nodes, grants).await
    }

    /// Frees the lock at all nodes; returns when it is certain that a majority has.
    async fn release(&self, claim: &Claim) -> Result<Released> {
        // From now on nobody sets it again at a node that lost it.
        claim.cancel();
        let _no_planting = self.shared.planting.read().await;
        let queued = claim.may_be_queued();
        let (shared, majority) = (Arc::clone(&self.shared), self.majority());
        let mut answers: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| {
                let (node, item, seats) = (
                    Arc::clone(node),
                    shared.release_item(claim, queued, String::new()),
                    Arc::clone(&shared.seats),
                );
                async move {
                    let answer = node.lane.call(item).await?;
                    let Freed { released, next } = answers::freed(answer.value, &RELEASE)?;
                    next.inspect(|&ticket| seats.wake(ticket));
                    Ok::<_, Error>(released || answer.in_doubt)
                }
            })
            .collect();
        let (mut freed, mut not_held, mut last) = (0, 0, None);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(true) => freed += 1,
                Ok(false) => not_held += 1,
                Err(error) => last = Some(error),
            }
            if freed >= majority || not_held >= majority {
                break;
            }
        }
        if !answers.is_empty() {
            // The slow ones are told, too.
            drop(tokio::spawn(async move { while answers.next().await.is_some() {} }));
        }
        match last {
            _ if freed >= majority => Ok(Released::Released),
            _ if not_held >= majority => Ok(Released::NotHeld),
            // With the silent ones it may have been a majority. They are asked again.
            Some(error) => Err(error),
            None if freed > not_held => Ok(Released::Released),
            None => Ok(Released::NotHeld),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let keys = self.shared.keys.of(name);
        let keys = Arc::new(vec![keys.lock, keys.queue, keys.seats]);
        let item = || Item { script: &INSPECT, slot: 0, keys: Arc::clone(&keys), args: Arc::default() };
        let mut looks = 0;
        loop {
            let answers = self.ask_all(item).await?;
            let status = answers::majority_status(name, &answers, self.majority())?;
            looks += 1;
            // The nodes that were not waited for may hold what is missing to a majority.
            if status.is_held() || answers.len() == self.nodes.len() || looks == LOOKS {
                return Ok(status);
            }
        }
    }

    async fn force_release(&self, name: &LockName) -> Result<usize> {
        let keys = self.shared.keys.of(name);
        let keys = Arc::new(vec![keys.lock, keys.queue, keys.seats]);
        let item = || Item { script: &FORCE, slot: 0, keys: Arc::clone(&keys), args: Arc::default() };
        let mut freed = 0;
        for answer in self.ask_all(item).await? {
            freed += usize::from(answers::int(Some(&answer))? == 1);
        }
        Ok(usize::from(freed >= self.majority()))
    }

    fn for_keeper(&self) -> Option<Arc<dyn DistributedLock>> {
        Some(Arc::new(Self::on(Arc::clone(&self.shared))))
    }

    async fn close(&self) {
        for node in &self.nodes {
            node.lane.wire().close();
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.shared.settings.nodes).finish_non_exhaustive()
    }
}
