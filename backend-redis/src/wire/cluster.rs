//! The masters of a cluster: a connection to each, and which of them serves which slot.
//!
//! The unit of failure is one node. Each master has a connection of its own, which is made when a call first
//! needs it, and replaced by itself. Nothing that all nodes share waits for one of them: who serves which
//! slot is asked in the background, of several nodes at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::{Backoff, lock};
use redis::{ConnectionAddr, RedisError, RedisResult, ServerErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::refresh::{ask_slots, read_slots};
use super::slots::{Name, View};
use crate::wire::Wire;
use crate::wire::dial::unreachable_now;
use crate::wire::doubts::Demands;
use crate::wire::link::{Link, Subscriber};
use crate::words::address::{Address, Topology};
use crate::words::keys::SLOTS;
use crate::words::mark::Slots;

/// The first and the longest pause between two requests for the slots.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// For how long a slot counts as moving after a call found it so.
const MOVING: Duration = Duration::from_secs(2);

/// The outcome of the request; `None` while it is under way.
type Refreshing = watch::Receiver<Option<RedisResult<()>>>;

pub(crate) struct Cluster {
    address: Address,
    subscriber: Subscriber,
    demands: Option<Demands>,
    state: Mutex<ClusterState>,
}

struct ClusterState {
    /// The master of each slot; empty before the first answer.
    slots: Vec<Option<Arc<Wire>>>,
    masters: HashMap<Name, Arc<Wire>>,
    /// Slots that calls found to be between two nodes, and when.
    moving: HashMap<u16, Moment>,
    /// The latest request for the slots.
    refreshing: Option<Refreshing>,
    next_refresh: Moment,
    pauses: Backoff,
}

impl Cluster {
    pub(crate) fn new(address: Address, subscriber: Subscriber, demands: Option<Demands>) -> Self {
        let state = ClusterState {
            slots: Vec::new(),
            masters: HashMap::new(),
            moving: HashMap::new(),
            refreshing: None,
            next_refresh: Moment::now(),
            pauses: pauses(),
        };
        Self { address, subscriber, demands, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        lock(&self.state)
    }

    /// The nodes that are known, by the address or by each other.
    fn addresses(&self) -> Vec<ConnectionAddr> {
        let Topology::Cluster(seeds) = &self.address.topology else { return Vec::new() };
        let mut addresses = seeds.clone();
        for name in self.state().masters.keys() {
            let addr = self.address.node(name.host.clone(), name.port);
            if !addresses.contains(&addr) {
                addresses.push(addr);
            }
        }
        addresses
    }

    /// Asks for the slots in the background, by one task at a time, with pauses in between.
    pub(crate) fn refresh_soon(self: &Arc<Self>) {
        drop(self.refresh());
    }

    /// Asks for the slots, and waits for the answer.
    pub(crate) async fn learn(self: &Arc<Self>) -> RedisResult<()> {
        // The task is gone only with its runtime; then the next call starts another.
        let mut asking = self.refresh().ok_or_else(unreachable_now)?;
        let outcome = asking.wait_for(Option::is_some).await.map_err(|_| unreachable_now())?.clone();
        outcome.unwrap_or(Ok(()))
    }

    fn refresh(self: &Arc<Self>) -> Option<Refreshing> {
        // A call can be dropped outside of any runtime.
        let runtime = Handle::try_current().ok()?;
        let mut state = self.state();
        if let Some(asking) = &state.refreshing
            && asking.borrow().is_none()
            && asking.has_changed().is_ok()
        {
            return Some(asking.clone());
        }
        let (sender, asking) = watch::channel(None);
        state.refreshing = Some(asking.clone());
        let begin = state.next_refresh;
        drop(state);
        let cluster = Arc::clone(self);
        drop(runtime.spawn(async move {
            tokio::time::sleep(begin.remaining()).await;
            let found = read_slots(&cluster.address, cluster.masters(), cluster.addresses()).await;
            if let Err(error) = &found {
                tracing::debug!(%error, "no node says who serves which slot");
            }
            let found = found.map(|view| cluster.apply(&view));
            let mut state = cluster.state();
            let pause = state.pauses.next_pause();
            state.next_refresh = Moment::now().after(pause);
            drop(state);
            sender.send_replace(Some(found));
        }));
        Some(asking)
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

    /// The slots of a master by its own word, which is what it acts by.
    pub(crate) async fn own_slots(&self, wire: &Arc<Wire>, link: &mut Link) -> RedisResult<Slots> {
        let view = ask_slots(link, &wire.host()).await?;
        let state = self.state();
        let is_its = |name: &Name| state.masters.get(name).is_some_and(|one| Arc::ptr_eq(one, wire));
        Ok(Slots::of(view.iter().filter(|(.., name)| is_its(name)).map(|(first, last, _)| (*first, *last))))
    }

    /// All masters that are known.
    pub(crate) fn masters(&self) -> Vec<Arc<Wire>> {
        self.state().masters.values().cloned().collect()
    }

    /// A master by its name. It is made if it is new.
    fn master(&self, state: &mut ClusterState, name: &Name) -> Arc<Wire> {
        let make = || {
            let address = self.address.at(self.address.node(name.host.clone(), name.port));
            Arc::new(Wire::new(address, Some(self.subscriber.clone())).demanding(self.demands))
        };
        Arc::clone(state.masters.entry(name.clone()).or_insert_with(make))
    }

    /// Updates the slots from the nodes' answer.
    fn apply(&self, view: &View) {
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
