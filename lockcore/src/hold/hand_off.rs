//! The hand-off of a held lock from one task to the next of the same process.

use std::sync::Arc;

use crate::background::{AcquireStatus, Armed};
use crate::lease::{Left, PassOn};
use crate::local::{ClaimTurn, LocalQueues, LocalWaiter, Turn};
use crate::{Clock, Grant, Moment};

/// The queues of the tasks of a client, in which locks are handed on.
pub(crate) type LockQueues = LocalQueues<HandedLock>;

/// How often, and until when, the lock of a guard may still be handed on.
#[derive(Debug)]
pub(crate) struct HandOff {
    pub(crate) turn: Arc<ClaimTurn<HandedLock>>,
    /// How many more times, and until when.
    pub(super) times: u32,
    pub(super) until: Moment,
}

impl HandOff {
    /// For a lock that was just claimed, if hand-offs are wanted. Otherwise the claim turn is passed on at
    /// once, and the next task claims at the server.
    pub(crate) fn new(turn: Arc<ClaimTurn<HandedLock>>, clock: &Clock) -> Option<Self> {
        let hand_over = turn.hand_over()?;
        turn.note_held();
        let until = clock.now().after(hand_over.span());
        Some(Self { times: hand_over.max(), until, turn })
    }

    /// Gives a lock whose hold has ended, with what is left of its lease, to the next task. If no task takes
    /// it, its claim is returned, and is to be released.
    pub(crate) fn to_next(&self, grant: &Grant, left: Left, armed: Armed) -> Option<Armed> {
        // The backend may have reserved fewer tokens than the claim wants: each task needs its own.
        let is_last = grant.claim().tokens().get() > 1 && grant.token() == grant.last_token();
        if self.times == 0 || is_last || grant.claim().clock().has_passed(self.until) {
            return Some(armed);
        }
        let Some((turn, waiter)) = self.turn.to_first(|waiter| fits(waiter, grant)) else {
            return Some(armed);
        };
        let handed = HandedLock {
            armed: Some(armed),
            grant: grant.successor().renewed(left.sent, left.until),
            times: self.times - 1,
            until: self.until,
            turn: Some(turn),
        };
        // A waiter that has left drops the lock, and so releases it.
        drop(waiter.give(Turn::Handed(handed)));
        None
    }
}

/// Whether the waiter asks for the same lease as the lock has.
fn fits(waiter: &LocalWaiter<HandedLock>, grant: &Grant) -> bool {
    waiter.claim.ttl() == grant.claim().ttl()
        && waiter.claim.lock_delay() == grant.claim().lock_delay()
        && !waiter.has_gone()
}

/// A held lock between two tasks. It is not renewed meanwhile: its lease is fresh, and the hand-off is short.
/// Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct HandedLock {
    pub(super) armed: Option<Armed>,
    pub(super) grant: Grant,
    pub(super) times: u32,
    pub(super) until: Moment,
    pub(super) turn: Option<ClaimTurn<Self>>,
}

impl Drop for HandedLock {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            // The next task claims after the release, or after the keeper has taken it over.
            let next = self.turn.take().map(|turn| Arc::new(turn) as Arc<dyn PassOn>);
            armed.then(next).release_in_background(AcquireStatus::Answered);
        }
    }
}
