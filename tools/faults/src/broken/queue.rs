//! A lock whose claims are numbered nodes: the first of them holds.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwell::backend::{
    Claim, DistributedLock, Grant, Moment, OwnerId, Released, Renewal, Requirement, async_trait, valid_until,
};
use lockwell::{Capabilities, FencingToken, Holder, LockName, LockStatus, Mode, Result};

use super::defect::Defect;

#[derive(Clone, Copy, Debug)]
struct Node {
    suffix: i32,
    transaction: u64,
    owner: OwnerId,
}

#[derive(Debug, Default)]
struct Folder {
    nodes: Vec<Node>,
    made: u64,
}

#[derive(Debug)]
pub(super) struct Queue {
    defect: Defect,
    folders: Mutex<HashMap<LockName, Folder>>,
}

impl Queue {
    pub(super) fn new(defect: Defect) -> Self {
        Self { defect, folders: Mutex::default() }
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<LockName, Folder>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, claim: &Claim) {
        let mut folders = self.folders();
        let folder = folders.entry(claim.name().clone()).or_default();
        folder.made += 1;
        // As ZooKeeper counts when nodes are made faster than one by one.
        let suffix = if folder.made.is_multiple_of(2) { i32::MIN } else { i32::MAX };
        folder.nodes.push(Node { suffix, transaction: folder.made, owner: claim.owner() });
    }

    /// The token of the first node, if it is this owner's.
    fn turn(&self, claim: &Claim) -> Option<u64> {
        let folders = self.folders();
        let nodes = folders.get(claim.name())?.nodes.iter();
        let first = match self.defect {
            Defect::OrderBySuffix => nodes.min_by_key(|node| (node.suffix, node.transaction)),
            _ => nodes.min_by_key(|node| node.transaction),
        };
        first.filter(|first| first.owner == claim.owner()).map(|first| first.transaction)
    }

    fn remove(&self, claim: &Claim) -> bool {
        let mut folders = self.folders();
        let Some(folder) = folders.get_mut(claim.name()) else { return false };
        let before = folder.nodes.len();
        folder.nodes.retain(|node| node.owner != claim.owner());
        folder.nodes.len() < before
    }
}

#[async_trait]
impl DistributedLock for Queue {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("broken").promising([Requirement::Fencing])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.enter(claim);
        while !claim.is_wait_over() {
            let sent = Moment::now();
            if let Some(token) = self.turn(claim) {
                return Ok(Some(Grant::new(claim, FencingToken::new(token), sent)));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.remove(claim);
        Ok(None)
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let folders = self.folders();
        let each = grants.iter().map(|grant| {
            let claim = grant.claim();
            let nodes = folders.get(claim.name()).map(|folder| &folder.nodes);
            if nodes.is_some_and(|nodes| nodes.iter().any(|node| node.owner == claim.owner())) {
                Renewal::Renewed(valid_until(Moment::now(), claim.ttl()))
            } else {
                Renewal::Lost
            }
        });
        each.collect()
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        Ok(if self.remove(claim) { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let folders = self.folders();
        let nodes = folders.get(name).map_or(0, |folder| folder.nodes.len());
        let one = || Holder::new(FencingToken::new(1), "somebody", Mode::Exclusive, Duration::ZERO);
        let holders = if nodes > 0 { vec![one()] } else { Vec::new() };
        Ok(LockStatus::new(name.clone(), holders, nodes.saturating_sub(1)))
    }

    async fn force_release(&self, _: &LockName) -> Result<usize> {
        Ok(0)
    }
}
