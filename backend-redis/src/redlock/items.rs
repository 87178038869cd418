//! The arguments of Redlock's scripts. Every request names its round.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use lockwell_core::{Claim, Error, ErrorKind, Grant, Result};

use super::context::NodesContext;
use crate::calls::item::Item;
use crate::calls::items::{is_exclusive, millis, owner, renewal};
use crate::calls::requests::{Requests, polls, wanted};
use crate::words::keys::LockKeys;
use crate::words::script::{CLAIM_VOTE, INSTALL, REINSTATE, VOTE};

/// The number of one round of a claim. A record at a node belongs to claim *and* round: a request of an
/// earlier round may come late, and must not change the record of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundNumber(u64);

impl RoundNumber {
    /// That of no round.
    pub(super) const NONE: Self = Self(0);

    /// The next one. They rise over all claims of the process: a claim may be asked for again, by another
    /// client, too.
    pub(super) fn next() -> Self {
        static ROUNDS: AtomicU64 = AtomicU64::new(1);
        Self(ROUNDS.fetch_add(1, Ordering::Relaxed))
    }

    /// That of the round that this grant is from.
    pub(super) fn of(grant: &Grant) -> Result<Self> {
        let foreign = || Error::new(ErrorKind::InvalidInput, "this grant is not from Redlock");
        grant.record::<Self>().copied().ok_or_else(foreign)
    }

    pub(super) fn text(self) -> String {
        self.0.to_string()
    }
}

/// How far claims for several tokens may bring the counters ahead of the client's clock, in microseconds. If
/// all nodes lose their counters, tokens go on from the clock.
const AHEAD: u64 = 100_000;

/// The numbers that a round asks all nodes for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// A hint that is the same for all nodes makes their answers agree. Safety does not depend on it.
    floor: u64,
    pub(super) many: NonZeroU32,
}

impl Numbers {
    /// For this number of tokens, or fewer, by the client's clock and the highest token that it knows.
    fn new(tokens: NonZeroU32, clock: u64, known: u64) -> Self {
        let fit = AHEAD.saturating_sub(known.saturating_sub(clock));
        let fit = u32::try_from(fit).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        Self { floor: clock.max(known), many: tokens.min(fit) }
    }
}

impl NodesContext {
    pub(super) fn numbers(&self, claim: &Claim) -> Numbers {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let clock = u64::try_from(clock).unwrap_or_default();
        Numbers::new(claim.tokens(), clock, self.common.highest.load(Ordering::Relaxed))
    }

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
    pub(super) fn ballot(
        self: &Arc<Self>,
        claim: &Claim,
        round: RoundNumber,
        numbers: Numbers,
        ticket: Option<i64>,
    ) -> Ballot {
        let keys = &self.common.keys;
        let short = (is_exclusive(claim) && ticket.is_none()).then(|| Item {
            script: &VOTE,
            slot: 0,
            keys: vec![keys.lock(claim.name()), keys.token_of_bucket(claim.name())].into(),
            args: Arc::new(vec![
                owner(claim),
                millis(claim.ttl()),
                claim.label().to_owned(),
                numbers.floor.to_string(),
                round.text(),
                numbers.many.to_string(),
            ]),
            value: None,
            takes: Some(claim.clone()),
        });
        Ballot { shared: Arc::clone(self), claim: claim.clone(), round, numbers, ticket, short }
    }

    /// Phase 2.
    pub(super) fn install(&self, claim: &Claim, round: RoundNumber, token: u64, many: NonZeroU32) -> Item {
        let args = vec![owner(claim), round.text(), token.to_string(), many.to_string()];
        let keys = self.keys_of_holder(claim).to_vec();
        Item::new(&INSTALL, 0, keys, args)
    }

    /// Extends leases.
    pub(super) fn renewal(&self, leases: &[(Grant, RoundNumber)]) -> Item {
        let leases = leases.iter().map(|(grant, round)| (grant.claim(), round.text()));
        renewal(&self.common.keys, leases, 0)
    }

    /// Sets a lock at a node that has lost it. It is not sent any more once the claim is cancelled.
    pub(super) fn reinstate(&self, grant: &Grant, round: RoundNumber) -> Item {
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
        Item { takes, ..Item::new(&REINSTATE, 0, keys, args) }
    }
}

/// The requests of a claim in phase 1.
pub(super) struct Ballot {
    shared: Arc<NodesContext>,
    pub(super) claim: Claim,
    round: RoundNumber,
    numbers: Numbers,
    /// The waiter to notify, if the claim queues.
    ticket: Option<i64>,
    short: Option<Item>,
}

impl Ballot {
    /// The request that serves a lock that is free, the same for all nodes. None for a claim that it does not
    /// serve.
    pub(super) fn short(&self) -> Option<Item> {
        self.short.clone()
    }

    /// The request that serves all claims, of the node with this number: each node notifies a waiter apart.
    /// `listens`: whether the client receives the node's notifications.
    pub(super) fn full(&self, node: usize, listens: bool) -> Item {
        let (claim, keys) = (&self.claim, &self.shared.common.keys);
        let LockKeys { lock, queue, waiters, .. } = keys.of(claim.name());
        let [members, details] = keys.group(claim.name());
        let counter = keys.token_of_bucket(claim.name());
        let waiter = |ticket| format!("{}:{}", self.shared.channel, ticket_at(ticket, node));
        let mut args = self.shared.requests().lead("");
        let [owner, ttl, label, _, mode] = wanted(claim);
        let waiter = self.ticket.map_or_else(String::new, waiter);
        let Numbers { floor, many } = self.numbers;
        args.extend([owner, ttl, label, many.to_string(), mode, waiter]);
        args.extend([floor.to_string(), self.round.text(), polls(listens)]);
        let keys = vec![lock, queue, waiters, members, details, counter];
        Item { takes: Some(claim.clone()), ..Item::new(&CLAIM_VOTE, 0, keys, args) }
    }
}

/// The ticket of a waiter at one of the nodes.
pub(super) fn ticket_at(ticket: i64, node: usize) -> i64 {
    ticket * 64 + i64::try_from(node).unwrap_or_default()
}
