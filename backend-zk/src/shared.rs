//! What all handles of one client share.

use std::sync::{Arc, Weak};

use lockcore::backend::valid_until;
use lockcore::{Capabilities, Claim, Grant, Moment};
use uuid::Uuid;

use crate::clock::ServerClock;
use crate::node::{Node, Table};
use crate::options::Options;
use crate::pool::Pool;
use crate::{release, thread};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) capabilities: Capabilities,
    pub(crate) pool: Pool,
    pub(crate) table: Table,
    pub(crate) clock: ServerClock,
}

impl Shared {
    /// Starts or extends the lease of a claim that holds the lock since, or still at, `sent`. `None`: too late, the
    /// claim is being given up.
    pub(crate) fn lease(self: &Arc<Self>, claim: &Claim, node: &Node, sent: Moment) -> Option<Moment> {
        let until = valid_until(sent, claim.ttl());
        let (alive, start) = self.table.lease(claim.owner().as_uuid(), until);
        if start {
            let sweeping = Arc::downgrade(self);
            drop(thread::spawn(async move { sweep(sweeping).await }));
        }
        alive.then(|| until.min(node.session.deadline()))
    }

    /// The grant of a claim that holds the lock.
    pub(crate) fn grant(self: &Arc<Self>, claim: &Claim, node: &Arc<Node>, sent: Moment) -> Option<Grant> {
        let deadline = self.lease(claim, node, sent)?;
        let grant = Grant::new(claim, node.token(), sent).with_deadline(deadline);
        Some(grant.with_record(Arc::<Node>::clone(node)))
    }
}

/// Deletes the nodes of claims that nobody has renewed. Our belief in them has just ended, by the same clock.
async fn sweep(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let (over, next) = strong.table.sweep(Moment::now());
        for (owner, node) in over {
            tracing::info!(lock = %node.lock, "the lease was not renewed; the lock is given up");
            discard(&strong, owner, node);
        }
        let Some(next) = next else { return };
        let bell = strong.table.bell.notified();
        tokio::select! {
            () = next.sleep() => (),
            () = bell => (),
        }
    }
}

/// Deletes a node in the background, for as long as it takes.
pub(crate) fn discard(shared: &Arc<Shared>, owner: Uuid, node: Arc<Node>) {
    let shared = Arc::clone(shared);
    drop(thread::spawn(async move { release::for_good(&shared, owner, &node).await }));
}
