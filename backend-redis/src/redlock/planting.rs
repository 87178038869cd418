//! Sets locks again at nodes that have lost them, so that the majority does not shrink with each node that restarts.
//!
//! Only locks that a majority has just confirmed, in the background, and never counted in the renewal that found them
//! missing. A release must not be undone by it. It cancels the claim before it sends anything, and:
//!
//! * What was not sent by then is not sent any more ([`Item::takes`](crate::calls::Item)).
//! * What was sent may be carried out after the release, which can travel over another runtime's connection. So the
//!   answer is waited for, and if the claim is cancelled by then, the node is told to release what this round has.
//! * A copy that comes still later, over a connection that was given up, makes the claim one that is
//!   [in doubt](lockcore::Claim::note_in_doubt): lockcore asks for its release again until the lease of such a copy has
//!   ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::Grant;

use super::Shared;
use super::items::Round;
use super::node::Node;

/// Sets locks again at one node. Nodes, and the names at one of them, do not wait for each other.
pub(super) fn plant(shared: &Arc<Shared>, node: &Arc<Node>, lost: Vec<(Grant, Round)>, limit: Duration) {
    let (shared, node) = (Arc::clone(shared), Arc::clone(node));
    drop(tokio::spawn(async move {
        let planted = lost.iter().map(async |(grant, round)| {
            let claim = grant.claim();
            if claim.is_cancelled() {
                return;
            }
            match node.numbers(shared.plant(grant, *round), limit).await {
                Ok(_) => {
                    tracing::info!(lock = %claim.name(), "a lock was set again at a node that had lost it");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::info!(lock = %claim.name(), error, "a node that lost a lock did not take it");
                }
            }
            if claim.is_cancelled() {
                shared.give_back(&node, claim, *round).await;
            }
        });
        join_all(planted).await;
    }));
}
