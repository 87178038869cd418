//! The place of a claim in a queue. It begins before the request for the node of the claim is sent.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::backend::lock;
use lockwell_core::{Claim, LockName, Moment};

use crate::lease_table::LeaseTable;
use crate::queue::node::Node;
use crate::session::Session;
use crate::session::room::Room;

/// How long a claim that nobody polls keeps its place, unless its lease is longer.
const UNPOLLED: Duration = Duration::from_secs(30);

/// How often a claim that somebody polls says so.
const STEP: Duration = Duration::from_secs(5);

/// A claim has a node in this session, or a request to make one may be under way.
///
/// The session lives as long as the process. So without an end of its own such a node would hold its lock for
/// as long: if nobody polls the claim any more, or if its create is carried out when nobody waits for it.
pub(crate) struct Place {
    /// Its session, and the room that its node has there.
    pub(crate) room: Room,
    pub(crate) lock: LockName,
    node: Mutex<Option<Arc<Node>>>,
    /// Nobody has polled the claim, or renewed its lease.
    given_up: AtomicBool,
    /// A task in the background deletes the node.
    discarded: AtomicBool,
}

impl Place {
    pub(crate) fn new(room: Room, lock: &LockName) -> Arc<Self> {
        Arc::new(Self {
            room,
            lock: lock.clone(),
            node: Mutex::default(),
            given_up: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
        })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.room.session()
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Node>>> {
        lock(&self.node)
    }

    /// The node, if it is known.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.slot().clone()
    }

    pub(crate) fn set_node(&self, node: Option<Arc<Node>>) {
        *self.slot() = node;
    }

    /// The time of the claim is over.
    pub(crate) fn note_given_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether a task in the background deletes the node. Then the claim needs another place.
    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Acquire)
    }

    /// A task in the background is about to delete the node. `false`: another one does so already.
    pub(crate) fn begin_discard(&self) -> bool {
        !self.discarded.swap(true, Ordering::AcqRel)
    }
}

/// The time in the table of a claim that keeps its place until [`UNPOLLED`] has passed.
pub(crate) fn patience(claim: &Claim) -> Moment {
    Moment::now().after(claim.ttl().max(UNPOLLED).saturating_sub(LeaseTable::<Place>::EXTRA))
}

/// Does the work of a claim, which keeps its place for as long as somebody polls this.
pub(crate) async fn while_polled<T>(
    places: &LeaseTable<Place>,
    claim: &Claim,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            // By the machine's clock: after a suspend it ends within a second, and a paused clock of the
            // runtime does not move it.
            () = Moment::now().after(STEP).sleep() => places.keep(claim.owner(), patience(claim)),
        }
    }
}
