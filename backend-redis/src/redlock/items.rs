//! What the scripts of Redlock are told. Every request names the round that it is about.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use lockcore::backend::PLACE_TTL;
use lockcore::{Claim, Error, ErrorKind, Grant, Result};

use super::Shared;
use crate::calls::Item;
use crate::items::{Caller, is_exclusive, millis, owner};
use crate::script::{INSTALL, PLANT, RELEASE_READER, RELEASE_ROUND, RENEW_ROUND, Script, VOTE, VOTE_READER};

/// One round of a claim. A record at a node belongs to claim *and* round: what an earlier round sent may come late, and
/// must not touch what a later one got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round(u64);

impl Round {
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

    fn text(self) -> String {
        self.0.to_string()
    }
}

impl Shared {
    pub(super) fn caller(&self) -> Caller<'_> {
        Caller { keys: &self.common.keys, channel: &self.channel, exact: true }
    }

    /// The keys that tell what a claim holds at a node: its token counter, the lock, and those of a group.
    fn keys_of_holder(&self, claim: &Claim) -> [String; 4] {
        let keys = &self.common.keys;
        let [members, details] = keys.group(claim.name());
        [keys.token_of_bucket(claim.name()), keys.lock(claim.name()), members, details]
    }

    /// Phase 1, for each node the same but for the seat.
    pub(super) fn votes(&self, claim: &Claim, round: Round) -> impl Fn(String) -> Item + use<> {
        // A hint that is the same for all nodes makes their answers agree. Safety does not depend on it.
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let known = self.common.highest.load(Ordering::Relaxed) + 1;
        let floor = u64::try_from(clock).unwrap_or(known).max(known).to_string();
        let all = &self.common.keys;
        let keys = all.of(claim.name());
        let mut keys = vec![all.token_of_bucket(claim.name()), keys.lock, keys.queue, keys.seats];
        let mut script: &'static Script = &VOTE;
        if !is_exclusive(claim) {
            script = &VOTE_READER;
            keys.extend(all.group(claim.name()));
        }
        let keys = Arc::new(keys);
        let claim = claim.clone();
        move |seat| {
            let args = vec![
                PLACE_TTL.as_micros().to_string(),
                owner(&claim),
                millis(claim.ttl()),
                claim.label().to_owned(),
                floor.clone(),
                round.text(),
                seat,
                claim.tokens().to_string(),
            ];
            Item { script, slot: 0, keys: Arc::clone(&keys), args: args.into(), takes: Some(claim.clone()) }
        }
    }

    /// Phase 2.
    pub(super) fn install(&self, claim: &Claim, round: Round, token: u64) -> Item {
        let many: NonZeroU32 = claim.tokens();
        let args = vec![owner(claim), round.text(), token.to_string(), many.to_string()];
        let keys = self.keys_of_holder(claim).to_vec();
        Item { script: &INSTALL, slot: 0, keys: keys.into(), args: args.into(), takes: None }
    }

    /// The giving up of a claim, with its place in the queue if it may have one: of one round, or when it is over of all.
    pub(super) fn release(&self, claim: &Claim, queued: bool, round: Option<Round>) -> Item {
        let keys = self.common.keys.of(claim.name());
        let mut keys = vec![keys.lock, keys.queue, keys.seats];
        let mut script: &'static Script = &RELEASE_ROUND;
        if !is_exclusive(claim) {
            script = &RELEASE_READER;
            keys.extend(self.common.keys.group(claim.name()));
        }
        let args = vec![
            self.channel.to_string(),
            "exact".to_owned(),
            owner(claim),
            if queued { "1" } else { "0" }.to_owned(),
            round.map_or_else(String::new, Round::text),
        ];
        Item { script, slot: 0, keys: keys.into(), args: args.into(), takes: None }
    }

    /// The turning of a writer into a reader: of the round that was granted.
    pub(super) fn downgrade(&self, claim: &Claim, round: Round) -> Item {
        let mut item = self.caller().downgrade(claim);
        Arc::make_mut(&mut item.args).push(round.text());
        item
    }

    /// The extending of leases.
    pub(super) fn renewal(&self, leases: &[(Grant, Round)]) -> Item {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (grant, round) in leases {
            let claim = grant.claim();
            let [_, lock, members, details] = self.keys_of_holder(claim);
            keys.extend([lock, members, details]);
            args.extend([owner(claim), round.text(), millis(claim.ttl())]);
        }
        Item { script: &RENEW_ROUND, slot: 0, keys: keys.into(), args: args.into(), takes: None }
    }

    /// The setting of a lock at a node that has lost it. Not sent any more once the claim is given up.
    pub(super) fn plant(&self, grant: &Grant, round: Round) -> Item {
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
        Item { script: &PLANT, slot: 0, keys: keys.into(), args: args.into(), takes }
    }

    /// A waiter's place at one node: each node notifies it apart.
    pub(super) fn place(&self, ticket: i64, node: usize) -> String {
        format!("{}:{}", self.channel, ticket_at(ticket, node))
    }
}

/// The ticket of a waiter at one of the nodes.
pub(super) fn ticket_at(ticket: i64, node: usize) -> i64 {
    ticket * 64 + i64::try_from(node).unwrap_or_default()
}
