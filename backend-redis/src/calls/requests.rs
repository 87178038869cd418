//! The requests of a claim: which script serves it, and with which arguments.

use std::time::Duration;

use lockwell_core::backend::{PLACE_TTL, StoredRecord, provisional_lease};
use lockwell_core::{Claim, Grant, LockName, RecordWrite};

use crate::calls::item::Item;
use crate::calls::items::{is_exclusive, millis, owner};
use crate::calls::place::Place;
use crate::words::keys::{Keys, LockKeys};
use crate::words::script::{
    ACQUIRE, CLAIM, DOWNGRADE, FORCE, RECLAIM, RELEASE, RELEASE_CLAIM, Script, WRITE_RECORD,
};

/// For how long it is known that a record was removed, in milliseconds.
const REMOVED_LIFE: &str = "86400000";

/// The requests of one client. At a node of Redlock, a request names its round; `""` is none, or all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests<'a> {
    pub(crate) keys: &'a Keys,
    /// The channel for notifications to this client.
    pub(crate) channel: &'a str,
    /// Whether the server's count of listeners is to be trusted: not in a cluster.
    pub(crate) exact: bool,
}

/// Whether the short scripts serve a claim.
pub(crate) fn is_simple(claim: &Claim) -> bool {
    is_exclusive(claim) && claim.tokens().get() == 1
}

/// The arguments of a claim for the scripts that take a lock in any mode.
pub(crate) fn wanted(claim: &Claim) -> [String; 5] {
    let (tokens, mode) = (claim.tokens().to_string(), claim.mode().code().to_string());
    [owner(claim), millis(claim.ttl()), claim.label().to_owned(), tokens, mode]
}

/// Tells a server that a waiter receives no notifications, and polls.
pub(crate) fn polls(listens: bool) -> String {
    if listens { String::new() } else { "1".to_owned() }
}

impl Requests<'_> {
    /// Takes an exclusive lock that is free. A refused claim leaves no record.
    pub(crate) fn acquire(&self, claim: &Claim) -> Item {
        let (name, slot) = (claim.name(), self.keys.slot(claim.name()));
        let keys = vec![self.keys.token(slot), self.keys.lock(name), self.keys.waiters(slot, name)];
        let args = vec![
            self.keys.token_life().to_owned(),
            owner(claim),
            millis(claim.ttl()),
            claim.label().to_owned(),
        ];
        let takes = Some(claim.clone());
        Item { takes, ..Item::new(&ACQUIRE, slot, keys, args) }
    }

    /// Takes a lock in any mode. With a place the claim queues, and gives a heartbeat of this number.
    /// `listens`: whether its client receives notifications.
    pub(crate) fn claim(&self, claim: &Claim, place: Option<(&Place, u64)>, listens: bool) -> Item {
        // Waiters of this client that are granted the lock along with the claim are notified by messages, as
        // others are.
        let mut args = self.lead("");
        args.extend(wanted(claim));
        if let Some((place, sign)) = place {
            let lease = provisional_lease(claim).map(millis);
            args.extend([
                format!("{}:{}", self.channel, place.waiter.ticket()),
                lease.unwrap_or_default(),
                sign.to_string(),
                polls(listens),
                place.last().map_or_else(String::new, |place| place.to_string()),
            ]);
        } else {
            args.extend([const { String::new() }; 5]);
        }
        Item { takes: Some(claim.clone()), ..self.all_of(&CLAIM, claim.name(), args) }
    }

    /// Releases an exclusive lock without waiters, of any round.
    pub(crate) fn release(&self, claim: &Claim) -> Item {
        let (name, slot) = (claim.name(), self.keys.slot(claim.name()));
        let keys = vec![self.keys.lock(name), self.keys.waiters(slot, name)];
        Item::new(&RELEASE, slot, keys, vec![owner(claim)])
    }

    /// Releases what a claim holds by this round, and its place if it may have one. A release of all rounds
    /// removes the place as well that a late copy of a request may have taken.
    pub(crate) fn release_claim(&self, claim: &Claim, queued: bool, round: &str) -> Item {
        let mut args = self.lead(self.channel);
        let queued = match (queued, round) {
            (true, _) => "1",
            (false, "") if claim.in_doubt_until().is_some() => "2",
            (false, _) => "",
        };
        args.extend([owner(claim), claim.mode().code().to_string(), queued.to_owned(), round.to_owned()]);
        self.all_of(&RELEASE_CLAIM, claim.name(), args)
    }

    pub(crate) fn downgrade(&self, claim: &Claim, round: &str) -> Item {
        let mut args = self.lead(self.channel);
        args.extend([owner(claim), round.to_owned()]);
        self.all_of(&DOWNGRADE, claim.name(), args)
    }

    /// Frees a lock from these holders, see [`LockView::names`](crate::words::answers::LockView::names). With
    /// the length of a grace period, if there are any, for which none of them can reclaim it.
    pub(crate) fn force(&self, name: &LockName, holders: &[String], grace: Option<Duration>) -> Item {
        let mut args = self.lead(self.channel);
        args.push(grace.map_or_else(String::new, millis));
        args.extend_from_slice(holders);
        let item = self.all_of(&FORCE, name, args);
        let mut keys = (*item.keys).clone();
        keys.push(self.keys.freed(item.slot, name));
        Item { keys: keys.into(), ..item }
    }

    /// Writes the record of a lock. A removed one is kept for a day, for late copies of the writes before it.
    pub(crate) fn write_record(&self, grant: &Grant, write: &RecordWrite<'_>) -> Item {
        let claim = grant.claim();
        let (name, slot) = (claim.name(), self.keys.slot(claim.name()));
        let keys = vec![self.keys.lock(name), self.keys.record(slot, write.kind, name)];
        let life = if write.value.is_empty() { REMOVED_LIFE } else { "" };
        let held = format!("{}:{}:", owner(claim), grant.last_token());
        let args = vec![held, grant.hold_id().to_string(), write.number.to_string(), life.to_owned()];
        let value = Some(StoredRecord::text(grant, write).into());
        Item { value, ..Item::new(&WRITE_RECORD, slot, keys, args) }
    }

    /// Makes the record of a holder again at a server with this history, which has forgotten it.
    pub(crate) fn reclaim(&self, grant: &Grant, history: &str) -> Item {
        let claim = grant.claim();
        let (name, slot) = (claim.name(), self.keys.slot(claim.name()));
        let [members, details] = self.keys.group(name);
        let freed = self.keys.freed(slot, name);
        let keys = vec![self.keys.token(slot), self.keys.lock(name), members, details, freed];
        let last = grant.last_token().get();
        let many = last.saturating_sub(grant.token().get()) + 1;
        let (owner, ttl, label, mode) =
            (owner(claim), millis(claim.ttl()), claim.label(), claim.mode().code().to_string());
        let own =
            [owner, ttl, label.to_owned(), many.to_string(), mode, last.to_string(), history.to_owned()];
        let mut args = self.lead("");
        args.extend(own);
        // A late copy makes a record again that was released since.
        Item { takes: Some(claim.clone()), ..Item::new(&RECLAIM, slot, keys, args) }
    }

    /// The arguments of all calls that notify waiters.
    pub(crate) fn lead(&self, channel: &str) -> Vec<String> {
        let exact = if self.exact { "exact" } else { "" };
        let keep = PLACE_TTL.as_micros().to_string();
        vec![self.keys.token_life().to_owned(), channel.to_owned(), exact.to_owned(), keep]
    }

    /// A call that needs all keys of a lock.
    fn all_of(&self, script: &'static Script, name: &LockName, args: Vec<String>) -> Item {
        let LockKeys { lock, queue, waiters, token, slot } = self.keys.of(name);
        let [members, details] = self.keys.group(name);
        let keys = vec![token, lock, queue, waiters, members, details];
        Item::new(script, slot, keys, args)
    }
}
