//! A lock by a majority of nodes, each of which gives its vote to one owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwell::backend::{
    Claim, DistributedLock, Grant, Moment, OwnerId, Released, Renewal, Requirement, async_trait, valid_until,
};
use lockwell::{Capabilities, Error, ErrorKind, FencingToken, Holder, LockName, LockStatus, Mode, Result};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::defect::Defect;

/// How often nodes are started again, where they are.
const RESTARTS: Duration = Duration::from_millis(80);

/// When what a failed round gives back arrives.
const LATE: Duration = Duration::from_millis(8);

#[derive(Clone, Copy, Debug)]
struct Vote {
    owner: OwnerId,
    round: u64,
    until: Moment,
}

type Node = HashMap<LockName, Vote>;

#[derive(Debug)]
pub(super) struct Votes {
    defect: Defect,
    nodes: Arc<Vec<Mutex<Node>>>,
    tokens: AtomicU64,
    restarted: Mutex<Moment>,
}

fn open(node: &Mutex<Node>) -> MutexGuard<'_, Node> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Votes {
    pub(super) fn new(defect: Defect) -> Self {
        let nodes = if defect == Defect::HalfIsMajority { 4 } else { 3 };
        Self {
            defect,
            nodes: Arc::new((0..nodes).map(|_| Mutex::default()).collect()),
            tokens: AtomicU64::new(1),
            restarted: Mutex::new(Moment::now()),
        }
    }

    fn majority(&self) -> usize {
        match self.defect {
            Defect::HalfIsMajority => self.nodes.len() / 2,
            _ => self.nodes.len() / 2 + 1,
        }
    }

    /// Two nodes forget, now and then.
    fn forget(&self) {
        let mut restarted = self.restarted.lock().unwrap_or_else(PoisonError::into_inner);
        if self.defect == Defect::VotesAfterAmnesia && Moment::now().since(*restarted) > RESTARTS {
            *restarted = Moment::now();
            self.nodes.iter().take(2).for_each(|node| open(node).clear());
        }
    }

    async fn round(&self, claim: &Claim, round: u64) -> usize {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.shuffle(&mut rand::rng());
        let mut votes = 0;
        for at in order {
            let way = Duration::from_micros(rand::rng().random_range(0..1500));
            tokio::time::sleep(way).await;
            let (mut node, now) = (open(&self.nodes[at]), Moment::now());
            let vote = Vote { owner: claim.owner(), round, until: now.after(claim.ttl()) };
            let other = node.get(claim.name());
            if other.is_none_or(|other| other.until <= now || other.owner == claim.owner()) {
                node.insert(claim.name().clone(), vote);
                votes += 1;
            }
        }
        votes
    }

    /// Takes back the votes of a round, later.
    fn give_back(&self, claim: &Claim, round: u64) {
        let (nodes, name, owner) = (Arc::clone(&self.nodes), claim.name().clone(), claim.owner());
        let by_round = self.defect != Defect::OldGiveBack;
        drop(tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            for node in nodes.iter() {
                let mut node = open(node);
                let is_it = |vote: &Vote| vote.owner == owner && (!by_round || vote.round == round);
                if node.get(&name).is_some_and(is_it) {
                    node.remove(&name);
                }
            }
        }));
    }
}

#[async_trait]
impl DistributedLock for Votes {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("broken").promising([Requirement::Fencing])
    }

    async fn acquire(&self, claim: &Claim) -> Result<Option<Grant>> {
        let mut round = 0;
        while !claim.is_wait_over() {
            self.forget();
            round += 1;
            let sent = Moment::now();
            if self.round(claim, round).await >= self.majority() {
                let token = self.tokens.fetch_add(1, Ordering::SeqCst);
                return Ok(Some(Grant::new(claim, FencingToken::new(token), sent)));
            }
            self.give_back(claim, round);
            let pause = Duration::from_micros(rand::rng().random_range(0..4000));
            tokio::time::sleep(pause).await;
        }
        Ok(None)
    }

    async fn renew(&self, grants: &[Grant], _: Moment) -> Vec<Renewal> {
        let mut answers = Vec::new();
        for claim in grants.iter().map(Grant::claim) {
            let sent = Moment::now();
            let mut votes = 0;
            for node in self.nodes.iter() {
                if let Some(vote) = open(node).get_mut(claim.name())
                    && vote.owner == claim.owner()
                {
                    vote.until = sent.after(claim.ttl());
                    votes += 1;
                }
            }
            let is_ours = votes >= self.majority();
            answers.push(match self.defect {
                _ if is_ours => Renewal::Renewed(valid_until(sent, claim.ttl())),
                // The nodes that were started again cannot be reached by this client.
                Defect::VotesAfterAmnesia => {
                    Renewal::Unknown(Error::new(ErrorKind::Unreachable, "no majority answers"))
                }
                _ => Renewal::Lost,
            });
        }
        answers
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let mut votes = 0;
        for node in self.nodes.iter() {
            let mut node = open(node);
            if node.get(claim.name()).is_some_and(|vote| vote.owner == claim.owner()) {
                node.remove(claim.name());
                votes += 1;
            }
        }
        Ok(if votes > 0 { Released::Released } else { Released::NotHeld })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let now = Moment::now();
        let held = |node: &&Mutex<Node>| open(node).get(name).is_some_and(|vote| vote.until > now);
        let votes = self.nodes.iter().filter(held).count();
        let one = || Holder::new(FencingToken::new(1), "somebody", Mode::Exclusive, Duration::ZERO);
        let holders = if votes >= self.majority() { vec![one()] } else { Vec::new() };
        Ok(LockStatus::new(name.clone(), holders, 0))
    }

    async fn force_release(&self, _: &LockName) -> Result<usize> {
        Ok(0)
    }
}
