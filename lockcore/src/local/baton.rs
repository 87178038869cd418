//! A held lock on its way from one task to the next of the same process.

use std::sync::Arc;

use crate::keeper::{Armed, Outcome};
use crate::lease::Limits;
use crate::local::{HandOver, Next, Right, Turn, Waiter};
use crate::{Grant, LockGuard, Moment};

/// What a guard knows of the journey of its lock.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) right: Arc<Right>,
    left: u32,
    until: Moment,
}

impl Pass {
    /// A journey that begins now.
    pub(crate) fn new(right: Right, hand_over: HandOver) -> Self {
        Self { right: Arc::new(right), left: hand_over.max, until: Moment::now().after(hand_over.span) }
    }

    /// Gives a lock whose hold has ended to the next task, which may believe in this grant until `deadline`. If nobody
    /// takes it, its claim comes back, to be given up.
    pub(crate) fn on(&self, grant: &Grant, deadline: Moment, armed: Armed) -> Option<Armed> {
        if self.left == 0 || self.until.has_passed() {
            return Some(armed);
        }
        let Next::Waiter(number, turn) =
            self.right.queues().next(self.right.name(), self.right.number(), |waiter| fits(waiter, grant))
        else {
            return Some(armed);
        };
        let right = Right::new(self.right.queues(), self.right.name(), number);
        let grant = grant.successor().believed_until(deadline);
        let baton =
            Baton { armed: Some(armed), grant, left: self.left - 1, until: self.until, right: Some(right) };
        // One who has gone drops the baton, and with it the lock.
        drop(turn.send(Turn::Baton(baton)));
        None
    }
}

/// The lease of the waiter is the same as the one that is on offer.
fn fits(waiter: &Waiter, grant: &Grant) -> bool {
    waiter.ttl == grant.claim().ttl() && waiter.rest == grant.claim().rest() && !waiter.turn.is_closed()
}

/// A held lock between two tasks. Nobody renews it meanwhile, which is right, since it is fresh and the way is short.
/// Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Baton {
    armed: Option<Armed>,
    grant: Grant,
    left: u32,
    until: Moment,
    right: Option<Right>,
}

impl Baton {
    /// Makes a guard of it; or, if the way was too long, what is needed to claim the lock anew.
    pub(crate) fn take(mut self, limits: Limits) -> Result<LockGuard, Option<Right>> {
        let right = self.right.take();
        if self.grant.deadline().has_passed() {
            return Err(right);
        }
        let (Some(armed), Some(right)) = (self.armed.take(), right) else { return Err(None) };
        let pass = Pass { right: Arc::new(right), left: self.left, until: self.until };
        let guard = LockGuard::new(armed.shared(), self.grant.clone(), limits, Some(pass));
        armed.disarm();
        Ok(guard)
    }
}

impl Drop for Baton {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            // The next claim comes after the release, not before it.
            armed.then(self.right.take().map(Arc::new)).give_up(Outcome::Answered);
        }
    }
}
