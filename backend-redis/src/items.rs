//! What scripts are told: of renewals, and of Redlock's releases.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::KEEP_EVERY;
use lockcore::{Claim, Grant, LockName, Mode};

use crate::answers::Busy;
use crate::calls::Item;
use crate::keys::{Keys, LockKeys};
use crate::script::{DOWNGRADE_VOTE, FORCE_VOTE, INSPECT, RENEW, Script};

/// How often the first in the queue asks while another program holds the lock, since that will not tell.
const FOREIGN: Duration = Duration::from_millis(50);

/// Who calls a script of Redlock at one node, as far as it wakes others.
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

    pub(crate) fn downgrade(&self, claim: &Claim) -> Item {
        let args = vec![self.channel.to_owned(), self.exact(), owner(claim)];
        self.all_of(&DOWNGRADE_VOTE, claim.name(), args)
    }

    pub(crate) fn inspect(&self, name: &LockName) -> Item {
        inspection(self.keys, name)
    }

    /// The freeing of a lock that these hold, see [`Look::names`](crate::answers::Look::names).
    pub(crate) fn force(&self, name: &LockName, holders: &[String]) -> Item {
        let mut args = vec![self.channel.to_owned(), self.exact()];
        args.extend_from_slice(holders);
        self.all_of(&FORCE_VOTE, name, args)
    }

    /// A call that needs all keys of a lock but its token counter.
    fn all_of(&self, script: &'static Script, name: &LockName, args: Vec<String>) -> Item {
        Item { script, args: args.into(), ..inspection(self.keys, name) }
    }
}

/// The question who holds a lock.
pub(crate) fn inspection(keys: &Keys, name: &LockName) -> Item {
    let LockKeys { lock, queue, seats, slot, .. } = keys.of(name);
    let [members, details] = keys.group(name);
    let keys = vec![lock, queue, seats, members, details];
    Item { script: &INSPECT, slot, keys: keys.into(), args: Arc::default(), takes: None }
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
