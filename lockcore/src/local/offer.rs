//! A held lock is offered to the tasks that wait.

use std::sync::Arc;

use super::handed_lock::HandedLock;
use super::names::LocalWaiter;
use super::queues::{ClaimTurn, Turn};
use crate::Grant;
use crate::contract::PassOn;

impl HandedLock {
    /// Offers the lock to the first task that waits behind the one with this turn. The answer is the lock, if
    /// it does not go to any.
    pub(crate) fn offer(mut self, turn: &ClaimTurn) -> Option<Self> {
        let mut last: Option<Arc<ClaimTurn>> = None;
        loop {
            let at = last.as_deref().unwrap_or(turn);
            let Some((next, waiter)) = at.to_first(|waiter| fits(waiter, &self.grant)) else {
                return Some(self);
            };
            let next = Arc::new(next);
            // Whatever releases the lock passes on the turn that is the valid one.
            let claim = self.grant.claim();
            claim.turn().put(Arc::clone(&next) as Arc<dyn PassOn>);
            // The task that claimed the lock may have left, and this one has not.
            claim.adopt();
            match waiter.give(Turn::Handed(Arc::clone(&next), self)) {
                // It has left at this moment.
                Some(Turn::Handed(_, lock)) => (self, last) = (lock, Some(next)),
                _ => return None,
            }
        }
    }
}

/// Whether the waiter asks for the same lease as the lock has, under the same label.
fn fits(waiter: &LocalWaiter<Turn>, grant: &Grant) -> bool {
    let held = grant.claim();
    waiter.claim.ttl() == held.ttl()
        && waiter.claim.lock_delay() == held.lock_delay()
        && waiter.claim.label() == held.label()
}
