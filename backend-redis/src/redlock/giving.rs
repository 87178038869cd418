//! Releases what a claim holds at the nodes: all of it, or the part of a writer.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockcore::{Claim, Error, ErrorKind, Grant, Released, Result};
use tokio::time::Instant;

use super::gather::next_until;
use super::node::Node;
use super::{GRACE, Quorum, Shared, items};
use crate::answers::{self, ReleaseAnswer};
use crate::calls::Item;
use crate::items::is_exclusive;

impl Shared {
    /// Calls a script at one node that frees something, and notifies the waiter of this client that is next.
    fn free(&self, node: &Arc<Node>, item: Item) -> impl Future<Output = Result<bool>> + use<> {
        let (node, waiters) = (Arc::clone(node), Arc::clone(&self.waiters));
        async move {
            let answer = node.calls.call(item).await?;
            let (freed, notifications) = answers::given_up(&answer.value, answer.generation)?;
            for notification in notifications {
                waiters.notify(notification.ticket);
            }
            // An earlier try, whose answer was lost, may have done it.
            Ok(freed || answer.in_doubt)
        }
    }

    /// Gives up at one node what the claim has there by this round, by all of them if none is named, and its place if it
    /// may have one. `short` is asked first, if there is such a request.
    pub(super) fn give_up_at(
        self: &Arc<Self>,
        node: &Arc<Node>,
        claim: &Claim,
        queued: bool,
        round: Option<items::Round>,
        short: Option<Item>,
    ) -> impl Future<Output = Result<bool>> + use<> {
        let (shared, node, claim) = (Arc::clone(self), Arc::clone(node), claim.clone());
        async move {
            let mut in_doubt = false;
            if let Some(short) = short {
                let answer = node.calls.call(short).await?;
                in_doubt = answer.in_doubt;
                match answers::released(&answer.value)? {
                    ReleaseAnswer::Released => return Ok(true),
                    ReleaseAnswer::NotHeld => return Ok(in_doubt),
                    ReleaseAnswer::Unclear => shared.hot.note(claim.name()),
                }
            }
            let round = round.map_or_else(String::new, items::Round::text);
            let item = shared.requests().give_up(&claim, queued, &round);
            Ok(shared.free(&node, item).await? || in_doubt)
        }
    }
}

impl Quorum {
    /// Frees something at all nodes. Returns when a majority has, or has had nothing to free.
    ///
    /// When a majority has answered, the claim has none any more. If the answers are mixed (some rounds of it had a few
    /// votes), the others are waited for a moment only. Their silence proves no loss: they may have held the lock.
    async fn free_everywhere<F>(&self, free: impl FnMut(&Arc<Node>) -> F) -> Result<bool>
    where
        F: Future<Output = Result<bool>> + Send + 'static,
    {
        let majority = self.majority();
        let mut answers: FuturesUnordered<_> = self.nodes.iter().map(free).collect();
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
            // The slow nodes get the request, too.
            drop(tokio::spawn(async move { while answers.next().await.is_some() {} }));
        }
        match last {
            Some(error) if freed + not_held < majority => Err(error),
            _ => Ok(not_held < majority),
        }
    }

    /// Frees the lock at all nodes; returns when it is certain that the claim has no majority any more.
    pub(super) async fn give_up(&self, claim: &Claim) -> Result<Released> {
        // From now on it is not set again at a node that lost it: see `planting.rs`.
        claim.cancel();
        let queued = claim.may_be_queued();
        let simple = !queued && is_exclusive(claim) && !self.shared.hot.is_hot(claim.name());
        let short = simple.then(|| self.shared.requests().release(claim));
        let freed =
            self.free_everywhere(|node| self.shared.give_up_at(node, claim, queued, None, short.clone()));
        Ok(if freed.await? { Released::Released } else { Released::NotHeld })
    }

    /// Turns the writer into a reader at all nodes; returns when a majority has done it, or has answered and does not say
    /// that the lock is gone.
    ///
    /// The majority matters only for other readers, which need one. At a node that has not got the request, or only that
    /// of an earlier renewal, the lock stays until its lease ends, as a writer's or as a reader's: both keep other
    /// writers out. So the validity stays as it was.
    pub(super) async fn step_down(&self, grant: &Grant) -> Result<Grant> {
        let writer = grant.claim();
        // From now on the writer's lock is not set again at a node that lost it, and late votes are released.
        writer.cancel();
        let round = items::Round::of(grant)?;
        let item = self.shared.requests().downgrade(writer, &round.text());
        if self.free_everywhere(|node| self.shared.free(node, item.clone())).await? {
            return Ok(grant.downgraded());
        }
        Err(Error::new(ErrorKind::Lost, "the lock was lost before the downgrade"))
    }
}
