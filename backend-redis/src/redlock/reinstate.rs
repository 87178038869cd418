//! Sets locks again at nodes that have lost them, so that the majority does not shrink with each node that
//! restarts.
//!
//! It is done only for locks that a majority has just confirmed, in the background, and does not count in the
//! renewal that found them missing. It must not undo a release. A release cancels the claim before it sends
//! anything, and:
//!
//! * A request that was not sent by then is not sent any more ([`Item::takes`](crate::calls::Item)).
//! * A request that was sent may be carried out after the release, which can travel over another runtime's
//!   connection. So this task waits for the answer, and if the claim is cancelled by then, it releases what
//!   this round has at the node.
//! * A copy that comes still later, over a connection that was replaced, puts the claim [in
//!   doubt](lockwell_core::Claim::note_in_doubt): lockcore repeats its release until the lease of such a copy
//!   has ended.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::Grant;

use super::context::NodesContext;
use super::items::RoundNumber;
use super::node::Node;

/// Sets locks again at one node. Nodes, and the names at one of them, do not wait for each other.
pub(super) fn reinstate(
    shared: &Arc<NodesContext>,
    node: &Arc<Node>,
    lost: Vec<(Grant, RoundNumber)>,
    limit: Duration,
) {
    let (shared, node) = (Arc::clone(shared), Arc::clone(node));
    drop(tokio::spawn(async move {
        let reinstated = lost.iter().map(async |(grant, round)| {
            let claim = grant.claim();
            if claim.is_cancelled() {
                return;
            }
            match node.numbers(shared.reinstate(grant, *round), limit).await {
                Ok(_) => {
                    tracing::info!(lockwell.name = %claim.name(), "a lock was set again at a node that had lost it");
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::info!(lockwell.name = %claim.name(), error, "a lock could not be set again at a node that had lost it");
                }
            }
            if claim.is_cancelled() {
                shared.withdraw_vote(&node, claim, *round).await;
            }
        });
        join_all(reinstated).await;
    }));
}
