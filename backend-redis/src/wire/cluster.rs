//! The masters of a cluster: a connection to each, and which of them serves which slot.
//!
//! The unit of failure is one node. Each master has a connection of its own, which is made when a call first
//! needs it, and replaced by itself. Nothing that all nodes share waits for one of them: who serves which
//! slot is asked in the background, of several nodes at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::Backoff;
use redis::{ConnectionAddr, RedisError, RedisResult, ServerErrorKind};

use tokio::sync::watch;

use super::slots::{Name, View};
use crate::wire::Wire;
use crate::wire::doubts::Demands;
use crate::wire::link::Subscriber;
use crate::words::address::{Address, Topology};
use crate::words::keys::SLOTS;

/// The first and the longest pause between two requests for the slots.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// For how long a slot counts as moving after a call found it so.
const MOVING: Duration = Duration::from_secs(2);

/// The outcome of the request; `None` while it is under way.
pub(super) type Refreshing = watch::Receiver<Option<RedisResult<()>>>;

pub(crate) struct Cluster {
    pub(super) address: Address,
    subscriber: Subscriber,
    demands: Option<Demands>,
    state: Mutex<State>,
}

pub(super) struct State {
    /// The master of each slot; empty before the first answer.
    slots: Vec<Option<Arc<Wire>>>,
    pub(super) masters: HashMap<Name, Arc<Wire>>,
    /// Slots that calls found to be between two nodes, and when.
    moving: HashMap<u16, Moment>,
    /// The latest request for the slots.
    pub(super) refreshing: Option<Refreshing>,
    pub(super) next_refresh: Moment,
    pub(super) pauses: Backoff,
}

impl Cluster {
    pub(crate) fn new(address: Address, subscriber: Subscriber, demands: Option<Demands>) -> Self {
        let state = State {
            slots: Vec::new(),
            masters: HashMap::new(),
            moving: HashMap::new(),
            refreshing: None,
            next_refresh: Moment::now(),
            pauses: pauses(),
        };
        Self { address, subscriber, demands, state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes that the address names.
    pub(super) fn seeds(&self) -> &[ConnectionAddr] {
        match &self.address.topology {
            Topology::Cluster(seeds) => seeds,
            _ => &[],
        }
    }

    /// The master of a slot, as far as it is known.
    pub(crate) fn wire(&self, slot: u16) -> Option<Arc<Wire>> {
        self.state().slots.get(usize::from(slot)).cloned().flatten()
    }

    /// The master of a slot. If it is not known, the nodes are asked.
    pub(crate) async fn find(self: &Arc<Self>, slot: u16) -> RedisResult<Arc<Wire>> {
        if let Some(wire) = self.wire(slot) {
            return Ok(wire);
        }
        self.learn().await?;
        let text = "no node serves this slot";
        self.wire(slot).ok_or_else(|| RedisError::from((ServerErrorKind::ClusterDown.into(), text)))
    }

    /// The first slot of a master, as far as it is known.
    pub(crate) fn first_slot(&self, wire: &Arc<Wire>) -> Option<u16> {
        let is_its = |slot: &Option<Arc<Wire>>| slot.as_ref().is_some_and(|one| Arc::ptr_eq(one, wire));
        self.state().slots.iter().position(is_its).and_then(|slot| u16::try_from(slot).ok())
    }

    /// All masters that are known.
    pub(crate) fn masters(&self) -> Vec<Arc<Wire>> {
        self.state().masters.values().cloned().collect()
    }

    /// A master by its name. It is made if it is new.
    fn master(&self, state: &mut State, name: &Name) -> Arc<Wire> {
        let make = || {
            let address = self.address.at(self.address.node(name.host.clone(), name.port));
            Arc::new(Wire::new(address, Some(self.subscriber.clone())).demanding(self.demands))
        };
        Arc::clone(state.masters.entry(name.clone()).or_insert_with(make))
    }

    /// Updates the slots from the nodes' answer.
    pub(super) fn apply(&self, view: &View) {
        let mut state = self.state();
        let mut slots: Vec<Option<Arc<Wire>>> = vec![None; usize::from(SLOTS)];
        for (first, last, name) in view {
            let wire = self.master(&mut state, name);
            if let Some(range) = slots.get_mut(usize::from(*first)..=usize::from(*last)) {
                range.fill(Some(wire));
            }
        }
        let same = |(one, two): (&Option<Arc<Wire>>, &Option<Arc<Wire>>)| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (one, two) => one.is_none() && two.is_none(),
        };
        let changed = slots.len() != state.slots.len() || !slots.iter().zip(&state.slots).all(same);
        state.slots = slots;
        // The connection of one that serves nothing any more closes when the last call on it has ended.
        let before = state.masters.len();
        state.masters.retain(|name, _| view.iter().any(|(_, _, other)| other == name));
        let lost = state.masters.len() < before;
        if changed {
            state.pauses = pauses();
        }
        drop(state);
        if lost {
            // Notifications to its subscribers may be lost. When a slot moves between two masters, they are
            // not: those of the new one arrive over the old one, too.
            self.subscriber.waiters.notify_all();
        }
    }

    /// Updates one slot from the answer of a node, and asks for the other slots.
    pub(crate) fn moved(self: &Arc<Self>, slot: u16, name: &Name) -> Arc<Wire> {
        let wire = {
            let mut state = self.state();
            let wire = self.master(&mut state, name);
            if let Some(place) = state.slots.get_mut(usize::from(slot)) {
                *place = Some(Arc::clone(&wire));
            }
            wire
        };
        self.refresh_soon();
        wire
    }

    /// The node that has the keys of a slot which is being moved to it.
    pub(crate) fn asked(&self, name: &Name) -> Arc<Wire> {
        self.master(&mut self.state(), name)
    }

    /// Notes that a slot is being moved between two nodes.
    pub(crate) fn note_moving(&self, slot: u16) {
        let mut state = self.state();
        state.moving.retain(|_, since| !since.after(MOVING).has_passed());
        state.moving.insert(slot, Moment::now());
    }

    pub(crate) fn is_moving(&self, slot: u16) -> bool {
        self.state().moving.get(&slot).is_some_and(|since| !since.after(MOVING).has_passed())
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.slots.clear();
        let masters = std::mem::take(&mut state.masters);
        drop(state);
        for wire in masters.values() {
            wire.close();
        }
    }
}

fn pauses() -> Backoff {
    Backoff::new(PAUSES.0, PAUSES.1)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address).finish_non_exhaustive()
    }
}
