//! Whether those who wait are served in the order in which they came.

use std::collections::BTreeSet;

use lockwell::Mode;

use super::super::history::Hold;
use super::liveness::Disturbed;
use crate::checker::rules::{Found, OfLock, Span};

/// Finds grants to somebody who asked later, by more than `grace`, than another who was granted the lock only
/// after that. Only of exclusive locks: readers come in together. An attempt that was not granted may have
/// left the queue before its caller knew, and who waited while a fault was at work may have lost the place:
/// they prove nothing.
pub(super) fn out_of_order(lock: &OfLock, grace: u64, disturbed: &Disturbed, found: &mut Found) {
    let is_judged = |hold: &&Hold| {
        let waited = Span { from: hold.ask.asked, until: hold.from };
        hold.ask.mode == Mode::Exclusive && !disturbed.touches(waited)
    };
    // They are in the order of their grants.
    let holds: Vec<&Hold> = lock.holds.iter().filter(is_judged).collect();
    // All that have not come to their end, by the time of the call.
    let mut waiting: BTreeSet<(u64, usize)> =
        holds.iter().enumerate().map(|(at, hold)| (hold.ask.asked, at)).collect();
    for (at, hold) in holds.iter().enumerate() {
        waiting.remove(&(hold.ask.asked, at));
        let Some((first, other)) = waiting.first() else { break };
        if first + grace < hold.ask.asked {
            let (lock, late, who) = (hold.ask.lock, hold.ask.who, holds[*other].ask.who);
            let waited = (hold.from - first) / 1000;
            found.add(|| {
                format!("lock {lock} was granted to {late} before {who}, who had waited for {waited} us")
            });
        }
    }
}
