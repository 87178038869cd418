//! The nodes as one runtime uses them, and questions to all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use futures_util::future::try_join_all;
use lockwell_core::backend::{Hot, Waiters};
use lockwell_core::{Error, ErrorKind, LockName, LockStatus, Mode, Result};
use tokio::sync::Semaphore;

use super::context::{Common, NodesContext};
use super::node::Node;
use super::tally;
use crate::calls::item::{Item, ItemReply};
use crate::calls::items::inspection;
use crate::checks;
use crate::gather::gather;
use crate::wire::link::Subscriber;
use crate::words::answers::{self, LockView};

/// How long to wait for slow nodes when a majority has answered a question.
pub(super) const SLOW_NODES: Duration = Duration::from_millis(100);
/// How often a lock is looked at again when some nodes did not answer in time and the others show no holder.
const VIEWS: u32 = 2;
/// The most rounds under way in one client.
const ROUNDS: usize = 128;
/// The nodes as one runtime uses them.
pub(super) struct Quorum {
    pub(super) shared: Arc<NodesContext>,
    pub(super) nodes: Vec<Arc<Node>>,
}

impl Quorum {
    pub(super) fn new(common: &Arc<Common>) -> Self {
        let waiters = Waiters::new();
        let channel: Arc<str> = common.keys.channel(format_args!("{:032x}", waiters.client())).into();
        let settings = &common.settings;
        let node = |address: &crate::words::address::Address| {
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

    pub(super) fn majority(&self) -> usize {
        tally::majority(self.nodes.len())
    }

    /// Connects to the nodes: a majority at least, and none that refuses us.
    pub(super) async fn check(&self) -> Result<()> {
        let settings = &self.shared.common.settings;
        let limit = settings.options.timeout;
        let examined = self.nodes.iter().map(|node| async move {
            let generation = node.generation(limit).await?;
            checks::rights(node.calls.wire(), &self.shared.common.keys, &[], limit).await?;
            node.examine(generation, limit, settings.longest_ttl).await
        });
        let (mut runs, mut missing, mut forgetful) = (Vec::new(), None, 0);
        let examined = gather(examined, self.majority(), SLOW_NODES).await;
        for (answer, address) in examined.into_iter().zip(&settings.nodes) {
            let answer = answer.unwrap_or_else(|| Err(crate::words::error::no_answer(None)));
            match answer.map_err(|error| error.at(address.topology.to_string())) {
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
                        tracing::warn!(lockwell.node = %address.topology, lockwell.wait = ?wait, "this node may have forgotten grants: no vote yet");
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    tracing::warn!(lockwell.node = %address.topology, "this node cannot be reached");
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

    /// Asks all nodes with the same item, and returns the answers of those that answer in time, at least a
    /// majority.
    pub(super) async fn ask_all(&self, item: impl Fn() -> Item) -> Result<Vec<ItemReply>> {
        let limit = self.shared.common.settings.options.timeout.min(Duration::from_secs(1));
        let calls = self.nodes.iter().map(|node| node.calls.call_within(item(), limit));
        let mut last_error = None;
        let mut replies = Vec::new();
        for reply in gather(calls, self.majority(), SLOW_NODES).await {
            match reply {
                Some(Ok(reply)) => replies.push(reply),
                Some(Err(error)) => last_error = Some(error),
                None => (),
            }
        }
        match last_error {
            Some(error) if replies.len() < self.majority() => Err(error),
            _ => Ok(replies),
        }
    }

    /// What a majority of the nodes knows about a lock, at least.
    pub(super) async fn views(&self, name: &LockName) -> Result<Vec<LockView>> {
        let replies = self.ask_all(|| inspection(&self.shared.common.keys, name)).await?;
        replies.iter().map(|reply| answers::lock_view(&reply.value)).collect()
    }

    pub(super) async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
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

    /// Frees the lock at all nodes, and returns from how many holders.
    ///
    /// A claim that the nodes showed with a few votes, or that is just being released, may be a holder by the
    /// time at which its votes are deleted. So whoever loses a vote counts; of writers only one can hold the
    /// lock.
    pub(super) async fn force_release(&self, name: &LockName) -> Result<usize> {
        let found = self.views(name).await?;
        let holders: HashMap<_, _> = found.iter().flat_map(LockView::names).collect();
        let freed = holders.into_iter().map(async |(holder, mode)| {
            let holder = [holder.to_owned()];
            let mut lost_votes = false;
            // The call names the holder, so that a repeated call does not free a successor.
            for reply in self.ask_all(|| self.shared.requests().force(name, &holder, None)).await? {
                let (freed, notifications) = answers::freed_all(&reply.value, 0)?;
                lost_votes |= freed > 0 || reply.in_doubt;
                for notification in notifications {
                    self.shared.waiters.notify(notification.ticket);
                }
            }
            Ok::<_, Error>(lost_votes.then_some(mode))
        });
        let freed = try_join_all(freed).await?;
        let (writers, others): (Vec<_>, Vec<_>) =
            freed.into_iter().flatten().partition(|mode| *mode == Mode::Exclusive);
        Ok(writers.len().min(1) + others.len())
    }
}
