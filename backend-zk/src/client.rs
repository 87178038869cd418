//! What the calls of one client and its background work share.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{Backoff, valid_until};
use lockwell_core::{Capabilities, Claim, Grant, Moment, Result, Wait};

use crate::lease_table::LeaseTable;
use crate::names::path_bytes;
use crate::options::ZkOptions;
use crate::queue::child::Child;
use crate::queue::folders::Folders;
use crate::queue::node::Node;
use crate::queue::place::Place;
use crate::session::clock::ServerClock;
use crate::session::pool::Pool;
use crate::session::room::Room;

/// One client.
#[derive(Debug)]
pub(crate) struct ClientInner {
    pub(crate) options: Arc<ZkOptions>,
    pub(crate) pool: Pool,
    /// The places of the claims, and the ends of their leases.
    pub(crate) leases: Arc<LeaseTable<Place>>,
    pub(crate) clock: ServerClock,
    pub(crate) folders: Folders,
    pub(crate) capabilities: Capabilities,
}

impl ClientInner {
    /// The node of this client with this name, even while it is being deleted.
    pub(crate) fn node_of(&self, child: &Child) -> Option<Arc<Node>> {
        let node = self.leases.find(child.owner?)?.node();
        node.filter(|node| node.name() == child.name)
    }

    /// Room in a session for the node of a claim in this folder. If no server can be reached, this tries
    /// again for as long as the claim waits.
    pub(crate) async fn room(&self, claim: &Claim, folder: &str) -> Result<Room> {
        let bytes = path_bytes(folder);
        let mut pauses = Backoff::new(Duration::from_millis(40), Duration::from_secs(1));
        loop {
            match self.pool.room(claim.ttl(), claim.lock_delay(), bytes).await {
                Err(error) if error.is_retryable() && claim.wait() != Wait::No => {
                    tracing::info!(error = format!("{error:#}"), "no session; it is tried again");
                    pauses.pause().await;
                }
                answer => return answer,
            }
        }
    }

    /// Starts or extends the lease of a claim that held the lock at `sent`. `None`: the claim is already
    /// being released.
    pub(crate) fn lease(&self, claim: &Claim, node: &Node, sent: Moment) -> Option<Moment> {
        node.note_proven(sent);
        let until = valid_until(sent, claim.ttl());
        // The node stays for the whole lease. The margin for clocks is a part of the holder's time alone.
        self.leases.extend(claim.owner(), sent.after(claim.ttl())).then(|| until.min(node.session.deadline()))
    }

    /// The grant of a claim that holds the lock.
    pub(crate) fn grant(&self, claim: &Claim, node: &Arc<Node>, sent: Moment) -> Option<Grant> {
        let deadline = self.lease(claim, node, sent)?;
        let grant = Grant::new(claim, node.token(), sent).with_deadline(deadline);
        Some(grant.with_record(Arc::<Node>::clone(node)))
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        self.leases.close();
    }
}
