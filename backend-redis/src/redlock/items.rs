//! The arguments of Redlock's scripts. Every request names its round.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use lockcore::{Claim, Error, ErrorKind, Grant, Result};

use super::NodesContext;
use crate::calls::Item;
use crate::items::{is_exclusive, millis, owner, renewal};
use crate::keys::LockKeys;
use crate::requests::{Requests, wanted};
use crate::script::{CLAIM_VOTE, INSTALL, REINSTATE, VOTE};

/// One round of a claim. A record at a node belongs to claim *and* round: a request of an earlier round may come late, and
/// must not change the record of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round(u64);

impl Round {
    /// A round that does not exist.
    pub(super) const NONE: Self = Self(0);

    /// The next one. They rise over all claims of the process: a claim may be asked for again, by another client, too.
    pub(super) fn next() -> Self {
        static ROUNDS: AtomicU64 = AtomicU64::new(1);
        Self(ROUNDS.fetch_add(1, Ordering::Relaxed))
    }

    /// The round that this grant is from.
    pub(super) fn of(grant: &Grant) -> Result<Self> {
        let foreign = || Error::new(ErrorKind::InvalidInput, "this grant is not from Redlock");
        grant.record::<Self>().copied().ok_or_else(foreign)
    }

    pub(super) fn text(self) -> String {
        self.0.to_string()
    }
}

impl NodesContext {
    /// The requests that a node serves as a single server does.
    pub(super) fn requests(&self) -> Requests<'_> {
        Requests { keys: &self.common.keys, channel: &self.channel, exact: true }
    }

    /// The keys of what a claim holds at a node: its token counter, the lock, and those of a group.
    fn keys_of_holder(&self, claim: &Claim) -> [String; 4] {
        let keys = &self.common.keys;
        let [members, details] = keys.group(claim.name());
        [keys.token_of_bucket(claim.name()), keys.lock(claim.name()), members, details]
    }

    /// Phase 1.
    pub(super) fn ballot(self: &Arc<Self>, claim: &Claim, round: Round, ticket: Option<i64>) -> Ballot {
        // A hint that is the same for all nodes makes their answers agree. Safety does not depend on it.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let known = self.common.highest.load(Ordering::Relaxed) + 1;
        let floor = u64::try_from(clock).unwrap_or(known).max(known).to_string();
        let keys = &self.common.keys;
        let short = (is_exclusive(claim) && ticket.is_none()).then(|| Item {
            script: &VOTE,
            slot: 0,
            keys: vec![keys.lock(claim.name()), keys.token_of_bucket(claim.name())].into(),
            args: Arc::new(vec![
                owner(claim),
                millis(claim.ttl()),
                claim.label().to_owned(),
                floor.clone(),
                round.text(),
                claim.tokens().to_string(),
            ]),
            takes: Some(claim.clone()),
        });
        Ballot { shared: Arc::clone(self), claim: claim.clone(), round, floor, ticket, short }
    }

    /// Phase 2.
    pub(super) fn install(&self, claim: &Claim, round: Round, token: u64) -> Item {
        let many: NonZeroU32 = claim.tokens();
        let args = vec![owner(claim), round.text(), token.to_string(), many.to_string()];
        let keys = self.keys_of_holder(claim).to_vec();
        Item { script: &INSTALL, slot: 0, keys: keys.into(), args: args.into(), takes: None }
    }

    /// Extends leases.
    pub(super) fn renewal(&self, leases: &[(Grant, Round)]) -> Item {
        let leases = leases.iter().map(|(grant, round)| (grant.claim(), round.text()));
        renewal(&self.common.keys, leases, 0)
    }

    /// Sets a lock at a node that has lost it. It is not sent any more once the claim is cancelled.
    pub(super) fn reinstate(&self, grant: &Grant, round: Round) -> Item {
        let claim = grant.claim();
        let args = vec![
            owner(claim),
            round.text(),
            millis(claim.ttl()),
            grant.last_token().to_string(),
            claim.label().to_owned(),
            claim.mode().code().to_string(),
        ];
        let keys = self.keys_of_holder(claim).to_vec();
        let takes = Some(claim.clone());
        Item { script: &REINSTATE, slot: 0, keys: keys.into(), args: args.into(), takes }
    }
}

/// The requests of a claim in phase 1.
pub(super) struct Ballot {
    shared: Arc<NodesContext>,
    pub(super) claim: Claim,
    round: Round,
    floor: String,
    /// The waiter to notify, if the claim queues.
    ticket: Option<i64>,
    short: Option<Item>,
}

impl Ballot {
    /// The request that serves a lock that is free, the same for all nodes. None for a claim that it does not serve.
    pub(super) fn short(&self) -> Option<Item> {
        self.short.clone()
    }

    /// The request that serves all claims, of the node with this number: each node notifies a waiter apart.
    pub(super) fn full(&self, node: usize) -> Item {
        let (claim, keys) = (&self.claim, &self.shared.common.keys);
        let LockKeys { lock, queue, waiters, .. } = keys.of(claim.name());
        let [members, details] = keys.group(claim.name());
        let counter = keys.token_of_bucket(claim.name());
        let waiter = |ticket| format!("{}:{}", self.shared.channel, ticket_at(ticket, node));
        let mut args = self.shared.requests().lead("");
        args.extend(wanted(claim));
        args.extend([self.ticket.map_or_else(String::new, waiter), self.floor.clone(), self.round.text()]);
        let keys = vec![lock, queue, waiters, members, details, counter];
        Item {
            script: &CLAIM_VOTE,
            slot: 0,
            keys: keys.into(),
            args: args.into(),
            takes: Some(claim.clone()),
        }
    }
}

/// The ticket of a waiter at one of the nodes.
pub(super) fn ticket_at(ticket: i64, node: usize) -> i64 {
    ticket * 64 + i64::try_from(node).unwrap_or_default()
}
