//! Arguments of scripts: for renewals, and those of all claims.

use std::time::Duration;

use lockwell_core::backend::KEEP_EVERY;
use lockwell_core::{Claim, Grant, LockName, Mode};

use crate::calls::item::Item;
use crate::words::answers::Busy;
use crate::words::keys::{Keys, LockKeys};
use crate::words::script::{INSPECT, RENEW};

/// How often the first waiter asks while another program holds the lock, which sends no notifications.
const FOREIGN: Duration = Duration::from_millis(50);

/// The owner as the scripts write it.
pub(crate) fn owner(claim: &Claim) -> String {
    format!("{:032x}", claim.owner().as_u128())
}

pub(crate) fn millis(ttl: Duration) -> String {
    ttl.as_millis().to_string()
}

pub(crate) fn is_exclusive(claim: &Claim) -> bool {
    claim.mode() == Mode::Exclusive
}

/// How long to wait for a notification. The first waiter watches the holder's lease, since a dead holder
/// sends none.
pub(crate) fn recheck(busy: &Busy) -> Duration {
    if !busy.first {
        return KEEP_EVERY;
    }
    let most = if busy.foreign { FOREIGN } else { KEEP_EVERY };
    // A little later than the end, so that waiters of several processes do not ask at the same time.
    let jitter = Duration::from_millis(1).mul_f64(1.0 + 4.0 * rand::random::<f64>());
    busy.left.map_or(most, |left| left.saturating_add(jitter).min(most))
}

/// Asks who holds a lock.
pub(crate) fn inspection(keys: &Keys, name: &LockName) -> Item {
    let LockKeys { lock, queue, waiters, slot, .. } = keys.of(name);
    let [members, details] = keys.group(name);
    let keys = vec![lock, queue, waiters, members, details];
    Item::new(&INSPECT, slot, keys, Vec::new())
}

/// Divides leases into those of one call each, which takes no longer than about half a millisecond of the
/// server's time: a member of a group costs as much as twelve exclusive locks.
pub(crate) fn renewal_calls(grants: &[Grant]) -> impl Iterator<Item = &[Grant]> {
    let mut cost = 0_usize;
    grants.chunk_by(move |_, next| {
        cost += if is_exclusive(next.claim()) { 1 } else { 12 };
        let fits = cost < 500;
        if !fits {
            cost = 0;
        }
        fits
    })
}

/// Extends leases, each of its round where there are rounds.
pub(crate) fn renewal<'a>(
    keys: &Keys,
    leases: impl IntoIterator<Item = (&'a Claim, String)>,
    slot: u16,
) -> Item {
    let (mut locks, mut groups, mut args, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (claim, round) in leases {
        locks.push(keys.lock(claim.name()));
        if !is_exclusive(claim) {
            groups.extend(keys.group(claim.name()));
            places.push(locks.len().to_string());
        }
        args.extend([owner(claim), millis(claim.ttl()), round]);
    }
    locks.append(&mut groups);
    args.append(&mut places);
    Item::new(&RENEW, slot, locks, args)
}
