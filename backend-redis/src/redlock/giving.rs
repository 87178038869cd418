//! Giving up what is held at the nodes: all of it, or the part of a writer.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::{Claim, Error, ErrorKind, Grant, Released, Result};
use tokio::time::Instant;

use super::gather::next_until;
use super::node::Node;
use super::{GRACE, Quorum, Shared, items};
use crate::answers;
use crate::calls::Item;

impl Shared {
    /// Calls a script at one node that frees something, and wakes who can have it.
    pub(super) fn free(&self, node: &Arc<Node>, item: Item) -> impl Future<Output = Result<bool>> + use<> {
        let (node, waiters, script) = (Arc::clone(node), Arc::clone(&self.waiters), item.script);
        async move {
            let answer = node.calls.call(item).await?;
            let freed = answers::freed(answer.value, script)?;
            freed.next.inspect(|&ticket| waiters.notify(ticket));
            // An earlier try, whose answer was lost, may have done it.
            Ok(freed.released || answer.in_doubt)
        }
    }
}

impl Quorum {
    /// Frees something at all nodes. Returns when a majority has, or has had nothing to free.
    ///
    /// When a majority has answered, the claim has none any more. If the answers are mixed (some rounds of it had a few
    /// votes), the others are waited for a moment only. Their silence proves no loss: they may have held the lock.
    async fn free_everywhere(&self, item: impl Fn() -> Item) -> Result<bool> {
        let majority = self.majority();
        let mut answers: FuturesUnordered<_> =
            self.nodes.iter().map(|node| self.shared.free(node, item())).collect();
        let (mut freed, mut not_held, mut last, mut end) = (0, 0, None, None);
        while let Some(answer) = next_until(&mut answers, end).await {
            match answer {
                Ok(true) => freed += 1,
                Ok(false) => not_held += 1,
                Err(error) => last = Some(error),
            }
            if freed >= majority || not_held >= majority {
                break;
            }
            if freed + not_held >= majority {
                end.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
        if !answers.is_empty() {
            // The slow ones are told, too.
            drop(tokio::spawn(async move { while answers.next().await.is_some() {} }));
        }
        match last {
            Some(error) if freed + not_held < majority => Err(error),
            _ => Ok(not_held < majority),
        }
    }

    /// Frees the lock at all nodes; returns when it is certain that the claim has no majority any more.
    pub(super) async fn give_up(&self, claim: &Claim) -> Result<Released> {
        // From now on nobody sets it again at a node that lost it: see `planting.rs`.
        claim.cancel();
        let queued = claim.may_be_queued();
        let freed = self.free_everywhere(|| self.shared.release(claim, queued, None));
        Ok(if freed.await? { Released::Released } else { Released::NotHeld })
    }

    /// Turns the writer into a reader at all nodes; returns when a majority has done it, or has answered and does not say
    /// that the lock is gone.
    ///
    /// Nothing depends on the majority but that other readers can have one. At a node that has not heard of it, or only
    /// of an earlier renewal, the lock stands until its lease ends, as a writer's or as a reader's: both keep other
    /// writers out. So what is believed of the lease holds as before.
    pub(super) async fn step_down(&self, grant: &Grant) -> Result<Grant> {
        let writer = grant.claim();
        // From now on nobody sets the writer's lock again at a node that lost it, and votes that come late are given back.
        writer.cancel();
        let round = items::Round::of(grant)?;
        if self.free_everywhere(|| self.shared.downgrade(writer, round)).await? {
            return Ok(grant.downgraded());
        }
        Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
    }
}
