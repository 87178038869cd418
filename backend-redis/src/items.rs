//! Which script serves a claim, and what it is told. Exclusive locks have scripts of their own: the shortest.

use std::time::Duration;

use lockcore::backend::{KEEP_EVERY, PLACE_TTL};
use lockcore::{Claim, Grant, LockName, Mode};

use crate::answers::Busy;
use crate::calls::Item;
use crate::keys::{Keys, LockKeys};
use crate::script::{DOWNGRADE, FORCE, INSPECT, JOIN, PART, RELEASE, RENEW, Script, TAKE};

/// How often the first in the queue asks while another program holds the lock, since that will not tell.
const FOREIGN: Duration = Duration::from_millis(50);

/// Who calls a script, as far as it wakes others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) keys: &'a Keys,
    /// Where this process is woken.
    pub(crate) channel: &'a str,
    /// Whether the server's count of listeners is to be trusted: not in a cluster.
    pub(crate) exact: bool,
}

/// The owner as the scripts know it.
pub(crate) fn owner(claim: &Claim) -> String {
    claim.owner().as_uuid().simple().to_string()
}

pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_millis().to_string()
}

pub(crate) fn is_exclusive(claim: &Claim) -> bool {
    claim.mode() == Mode::Exclusive
}

/// How long to wait for a notification. One that stands first watches the holder's lease, since the dead send none.
pub(crate) fn recheck(busy: &Busy) -> Duration {
    if !busy.first {
        return KEEP_EVERY;
    }
    let most = if busy.foreign { FOREIGN } else { KEEP_EVERY };
    // A little later than the end, so that waiters of several processes do not meet.
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 4.0 * rand::random::<f64>());
    busy.left.map_or(most, |left| left.saturating_add(jitter).min(most))
}

impl Caller<'_> {
    fn exact(&self) -> String {
        if self.exact { "exact" } else { "" }.to_owned()
    }

    /// The taking of a lock. With a ticket the claim queues, and gives a sign of life.
    pub(crate) fn take(&self, claim: &Claim, ticket: Option<i64>) -> Item {
        let LockKeys { lock, queue, seats, token, slot } = self.keys.of(claim.name());
        let mut keys = vec![token, lock, queue, seats];
        let seat = ticket.map(|ticket| format!("{}:{ticket}", self.channel));
        let mut args = vec![self.keys.token_life().to_owned(), PLACE_TTL.as_micros().to_string()];
        let of_claim = [
            owner(claim),
            millis(claim.ttl()),
            claim.label().to_owned(),
            seat.unwrap_or_default(),
            claim.tokens().to_string(),
        ];
        let script: &Script = if is_exclusive(claim) {
            args.extend(of_claim);
            &TAKE
        } else {
            keys.extend(self.keys.group(claim.name()));
            args.push(self.exact());
            args.extend(of_claim);
            args.push(claim.mode().code().to_string());
            &JOIN
        };
        Item { script, slot, keys: keys.into(), args: args.into(), takes: Some(claim.clone()) }
    }

    /// The releasing of a claim, and of its place in the queue if it may have one. `round`: only what this round of
    /// Redlock has taken; empty for all.
    pub(crate) fn release(&self, claim: &Claim, queued: bool, round: String) -> Item {
        let LockKeys { lock, queue, seats, slot, .. } = self.keys.of(claim.name());
        let queued = if queued { "1" } else { "0" };
        let args = vec![self.channel.to_owned(), self.exact(), owner(claim), queued.to_owned(), round];
        let mut keys = vec![lock, queue, seats];
        let script: &Script = if is_exclusive(claim) {
            &RELEASE
        } else {
            keys.extend(self.keys.group(claim.name()));
            &PART
        };
        Item { script, slot, keys: keys.into(), args: args.into(), takes: None }
    }

    pub(crate) fn downgrade(&self, claim: &Claim) -> Item {
        let args = vec![self.channel.to_owned(), self.exact(), owner(claim)];
        self.all_of(&DOWNGRADE, claim.name(), args)
    }

    pub(crate) fn inspect(&self, name: &LockName) -> Item {
        self.all_of(&INSPECT, name, Vec::new())
    }

    /// The freeing of a lock that these hold, see [`Look::names`](crate::answers::Look::names).
    pub(crate) fn force(&self, name: &LockName, holders: &[String]) -> Item {
        let mut args = vec![self.channel.to_owned(), self.exact()];
        args.extend_from_slice(holders);
        self.all_of(&FORCE, name, args)
    }

    /// A call that needs all keys of a lock but its token counter.
    fn all_of(&self, script: &'static Script, name: &LockName, args: Vec<String>) -> Item {
        let LockKeys { lock, queue, seats, slot, .. } = self.keys.of(name);
        let [members, details] = self.keys.group(name);
        Item {
            script,
            slot,
            keys: vec![lock, queue, seats, members, details].into(),
            args: args.into(),
            takes: None,
        }
    }
}

/// The extending of leases.
pub(crate) fn renewal<'a>(keys: &Keys, grants: impl IntoIterator<Item = &'a Grant>, slot: u16) -> Item {
    let (mut locks, mut groups, mut args, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for claim in grants.into_iter().map(Grant::claim) {
        locks.push(keys.lock(claim.name()));
        args.extend([owner(claim), millis(claim.ttl())]);
        if !is_exclusive(claim) {
            groups.extend(keys.group(claim.name()));
            places.push(locks.len().to_string());
        }
    }
    locks.append(&mut groups);
    args.append(&mut places);
    Item { script: &RENEW, slot, keys: locks.into(), args: args.into(), takes: None }
}
