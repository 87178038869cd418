//! Which server a call goes to.

use std::sync::Arc;

use redis::RedisResult;

use crate::wire::Wire;
use crate::wire::cluster::Cluster;
use crate::wire::link::Link;
use crate::words::mark::Slots;

/// Finds the server of a slot.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// One server has all slots.
    One(Arc<Wire>),
    /// Each slot of a cluster is at one of its masters.
    Cluster(Arc<Cluster>),
}

impl Route {
    /// The server of a slot, as far as it is known.
    pub(crate) fn wire(&self, slot: u16) -> Option<Arc<Wire>> {
        match self {
            Self::One(wire) => Some(Arc::clone(wire)),
            Self::Cluster(cluster) => cluster.wire(slot),
        }
    }

    /// The server of a slot; asks for it if it is not known.
    pub(crate) async fn find(&self, slot: u16) -> RedisResult<Arc<Wire>> {
        match self {
            Self::One(wire) => Ok(Arc::clone(wire)),
            Self::Cluster(cluster) => cluster.find(slot).await,
        }
    }

    /// The slots of a server, by its own word.
    pub(crate) async fn own_slots(&self, wire: &Arc<Wire>, link: &mut Link) -> RedisResult<Slots> {
        match self {
            Self::One(_) => Ok(Slots::all()),
            Self::Cluster(cluster) => cluster.own_slots(wire, link).await,
        }
    }

    /// Notes that the server of a slot does not answer or has failed.
    pub(crate) fn note_trouble(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.refresh_soon();
        }
    }

    /// Whether another server can take the place of one that fails.
    pub(crate) fn can_move(&self) -> bool {
        match self {
            Self::One(wire) => wire.address.can_move(),
            Self::Cluster(_) => true,
        }
    }

    /// Whether notifications about the locks of a slot are received.
    ///
    /// In a cluster a notification is sent at the node of its lock, and reaches the subscribers of all nodes.
    /// A waiter's client subscribes at that very node: so it depends on no other.
    pub(crate) fn is_listening(&self, slot: u16) -> bool {
        self.wire(slot).is_some_and(|wire| wire.is_listening())
    }

    /// Subscribes to notifications about the locks of a slot, unless that has been done.
    pub(crate) async fn listen(&self, slot: u16) {
        if let Ok(wire) = self.find(slot).await {
            wire.listen().await;
        }
    }

    /// Whether a slot was found to be on its way to another node lately.
    pub(crate) fn is_moving(&self, slot: u16) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => cluster.is_moving(slot),
        }
    }

    /// The servers that have locks, as far as they are known.
    pub(crate) fn masters(&self) -> Vec<Arc<Wire>> {
        match self {
            Self::One(wire) => vec![Arc::clone(wire)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        match self {
            Self::One(wire) => wire.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
