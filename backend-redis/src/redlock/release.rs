//! Releases what a claim holds at the nodes, or turns a writer into a reader there.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockwell_core::{Claim, Error, ErrorKind, Grant, Released, Result};
use tokio::time::Instant;

use super::context::NodesContext;
use super::items;
use super::node::Node;
use super::quorum::{Quorum, SLOW_NODES};
use crate::calls::item::Item;
use crate::calls::items::is_exclusive;
use crate::gather::next_until;
use crate::words::answers::{self, ReleaseAnswer};

impl NodesContext {
    /// Calls a script that releases something at one node, and notifies the waiter of this client that is
    /// next.
    fn free(&self, node: &Arc<Node>, item: Item) -> impl Future<Output = Result<Released>> + use<> {
        let (node, waiters) = (Arc::clone(node), Arc::clone(&self.waiters));
        async move {
            let answer = node.calls.call(item).await?;
            let (freed, notifications) = answers::claim_released(&answer.value, answer.generation)?;
            for notification in notifications {
                waiters.notify(notification.ticket);
            }
            Ok(Released::from_answer(freed, answer.in_doubt))
        }
    }

    /// Releases at one node what the claim has there by this round, or by all rounds for `None`, and its
    /// place if it may have one. The request `short` is sent first, if there is one.
    pub(super) fn release_at(
        self: &Arc<Self>,
        node: &Arc<Node>,
        claim: &Claim,
        queued: bool,
        round: Option<items::RoundNumber>,
        short: Option<Item>,
    ) -> impl Future<Output = Result<Released>> + use<> {
        let (shared, node, claim) = (Arc::clone(self), Arc::clone(node), claim.clone());
        async move {
            let mut in_doubt = false;
            if let Some(short) = short {
                let answer = node.calls.call(short).await?;
                in_doubt = answer.in_doubt;
                match answers::released(&answer.value)? {
                    ReleaseAnswer::Released => return Ok(Released::Released),
                    ReleaseAnswer::NotHeld => return Ok(Released::from_answer(false, in_doubt)),
                    ReleaseAnswer::Unclear => shared.hot.note(claim.name()),
                }
            }
            let round = round.map_or_else(String::new, items::RoundNumber::text);
            let item = shared.requests().release_claim(&claim, queued, &round);
            Ok(match shared.free(&node, item).await? {
                Released::NotHeld => Released::from_answer(false, in_doubt),
                released => released,
            })
        }
    }
}

impl Quorum {
    /// Sends a release to all nodes. Returns when a majority has released something, or had nothing to
    /// release.
    ///
    /// When a majority has answered, the claim has no majority any more. If the answers differ (some rounds
    /// of the claim had a few votes), it waits for the other nodes, but only for `SLOW_NODES`. A missing answer
    /// does not prove that the lock was lost: that node may have held it. Nor do nodes prove that it was
    /// released where an earlier copy of the request, whose answer was lost, may have released it: if they
    /// decide, the outcome is in doubt.
    async fn free_everywhere<F>(&self, free: impl FnMut(&Arc<Node>) -> F) -> Result<Released>
    where
        F: Future<Output = Result<Released>> + Send + 'static,
    {
        let majority = self.majority();
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(free).collect();
        let (mut freed, mut in_doubt, mut not_held, mut last, mut end) = (0, 0, 0, None, None);
        while let Some(answer) = next_until(&mut answers, end).await {
            match answer {
                Ok(Released::Released) => freed += 1,
                Ok(Released::InDoubt) => in_doubt += 1,
                Ok(_) => not_held += 1,
                Err(error) => last = Some(error),
            }
            if freed >= majority || not_held >= majority {
                break;
            }
            if freed + in_doubt + not_held >= majority {
                end.get_or_insert_with(|| Instant::now() + SLOW_NODES);
            }
        }
        if !answers.is_empty() {
            // The slow nodes get the request, too.
            drop(tokio::spawn(async move { while answers.next().await.is_some() {} }));
        }
        match last {
            Some(error) if freed + in_doubt + not_held < majority => Err(error),
            _ if not_held >= majority => Ok(Released::NotHeld),
            _ => Ok(Released::from_answer(freed >= majority || in_doubt + not_held < majority, true)),
        }
    }

    /// Releases the claim at all nodes. Returns when it is certain that the claim has no majority any more.
    pub(super) async fn release_claim(&self, claim: &Claim) -> Result<Released> {
        // From now on it is not set again at a node that lost it: see `reinstate.rs`.
        claim.cancel();
        let queued = claim.may_be_queued();
        let simple = !queued && is_exclusive(claim) && !self.shared.hot.is_hot(claim.name());
        let short = simple.then(|| self.shared.requests().release(claim));
        self.free_everywhere(|node| self.shared.release_at(node, claim, queued, None, short.clone())).await
    }

    /// Turns the writer into a reader at all nodes; returns when a majority has done it, or has answered and
    /// does not say that the lock is gone.
    ///
    /// The majority matters only for other readers, which need one. At a node that has not received the
    /// request, the lock stays until its lease ends, as a writer's or as a reader's: both exclude other
    /// writers. So the validity stays as it was.
    pub(super) async fn downgrade(&self, grant: &Grant) -> Result<Grant> {
        let writer = grant.claim();
        // From now on the writer's lock is not set again at a node that lost it, and late votes are released.
        writer.cancel();
        let round = items::RoundNumber::of(grant)?;
        let item = self.shared.requests().downgrade(writer, &round.text());
        match self.free_everywhere(|node| self.shared.free(node, item.clone())).await? {
            Released::NotHeld => Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade")),
            _ => Ok(grant.downgraded()),
        }
    }
}
