//! A held lock is offered to the tasks that wait.

use std::sync::Arc;

use super::handed_lock::HandedLock;
use super::queues::{ClaimTurn, Turn};
use crate::contract::PassOn;
use crate::{Claim, Grant};

impl HandedLock {
    /// Offers the lock to the first task that waits behind the one with this turn, after so many in a row
    /// have not picked it up. The answer is the lock, if it does not go to any.
    pub(crate) fn offer(mut self, turn: &ClaimTurn, misses: u32) -> Option<Self> {
        let mut last: Option<Arc<ClaimTurn>> = None;
        loop {
            let at = last.as_deref().unwrap_or(turn);
            let Some((next, recipient)) = at.to_first(misses, |it| fits(&it.claim, &self.grant)) else {
                return Some(self);
            };
            let next = Arc::new(next);
            // Whatever releases the lock passes on the turn that is the valid one.
            let claim = self.grant.claim();
            claim.turn().put(Arc::clone(&next) as Arc<dyn PassOn>);
            // The task that claimed the lock may have left, and this one has not.
            claim.adopt();
            match recipient.give(Turn::Handed(Arc::clone(&next), self)) {
                // It has left at this moment.
                Some(Turn::Handed(_, lock)) => (self, last) = (lock, Some(next)),
                _ => return None,
            }
        }
    }
}

impl Turn {
    /// Whether it may go to this claim, which waits.
    pub(super) fn suits(&self, claim: &Claim) -> bool {
        match self {
            Self::Claim(_) => true,
            Self::Handed(_, lock) => fits(claim, &lock.grant),
            Self::Beside => false,
        }
    }
}

/// Whether a claim that waits asks for the same lease as the lock has, under the same label.
fn fits(waits: &Claim, grant: &Grant) -> bool {
    let held = grant.claim();
    waits.ttl() == held.ttl() && waits.lock_delay() == held.lock_delay() && waits.label() == held.label()
}
