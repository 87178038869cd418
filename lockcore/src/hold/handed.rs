//! A lock that was handed on becomes a guard.

use std::sync::Arc;

use super::hand_off::Slice;
use crate::LockGuard;
use crate::contract::Class;
use crate::life::Limits;
use crate::local::{ClaimTurn, HandedLock};

impl HandedLock {
    /// Makes a guard of it, for the task that has the claim turn. `None` if the hand-off took too long: the
    /// task has the turn still, to claim the lock anew.
    ///
    /// The class is that of the task, and the claim that of another one.
    pub(crate) fn take(mut self, turn: &Arc<ClaimTurn>, class: Class, limits: Limits) -> Option<LockGuard> {
        let claim = self.grant.claim();
        if claim.clock().has_passed(self.grant.deadline()) {
            // The release of this claim must not pass the turn on.
            drop(claim.take_turn());
            return None;
        }
        let stub = self.stub.take()?;
        let slice = Slice::until(Arc::clone(turn), stub.book(), &self.grant, self.times, self.until);
        Some(LockGuard::new(stub, self.grant.clone(), class, limits, slice))
    }
}
