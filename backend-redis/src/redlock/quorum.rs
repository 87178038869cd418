//! The nodes as one runtime uses them, and questions to all of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use lockwell_core::backend::{Hot, Waiters};
use lockwell_core::{Error, ErrorKind, LockName, LockStatus, Result};
use tokio::sync::Semaphore;

use super::context::{Common, NodesContext};
use super::node::Node;
use super::tally;
use crate::calls::item::Item;
use crate::calls::items::inspection;
use crate::checks;
use crate::gather::gather;
use crate::wire::link::Subscriber;
use crate::words::answers::{self, LockView};

/// How long to wait for slow nodes when a majority has answered a question.
pub(super) const GRACE: Duration = Duration::from_millis(100);
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
        let examined = gather(examined, self.majority(), GRACE).await;
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

    /// Asks all nodes with the same item, and returns the answers of those that answer in time, at least a
    /// majority.
    pub(super) async fn ask_all(&self, item: impl Fn() -> Item) -> Result<Vec<redis::Value>> {
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
    pub(super) async fn views(&self, name: &LockName) -> Result<Vec<LockView>> {
        let answers = self.ask_all(|| inspection(&self.shared.common.keys, name)).await?;
        answers.iter().map(answers::lock_view).collect()
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

    pub(super) async fn force_release(&self, name: &LockName) -> Result<usize> {
        let found = self.views(name).await?;
        let holders: HashSet<_> = found.iter().flat_map(LockView::names).map(str::to_owned).collect();
        let held = answers::majority_status(name, found, self.majority()).holders.len();
        if holders.is_empty() {
            return Ok(0);
        }
        // It names them, so that a repeated call does not free a successor.
        let holders: Vec<_> = holders.into_iter().collect();
        for answer in self.ask_all(|| self.shared.requests().force(name, &holders, None)).await? {
            for notification in answers::freed_all(&answer, 0)?.1 {
                self.shared.waiters.notify(notification.ticket);
            }
        }
        Ok(held)
    }
}
