//! The holds of one claim.

use super::lease::{Advice, Event, Lease, Left};
use crate::{LeaseState, Moment};

/// A lock that is handed on keeps its claim, so a claim can have several holds, one after the other. They are
/// numbered from zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    present: u64,
    /// The present hold is not to be followed by another one.
    bound: bool,
    lease: Option<Lease>,
}

impl Holds {
    pub(super) fn begin(&mut self, lease: Lease) {
        self.lease = Some(lease);
    }

    /// Whether the lease of the present hold is renewed.
    pub(super) fn is_alive(&self) -> bool {
        self.lease.is_some_and(|lease| lease.state().is_held())
    }

    /// The hold of this number is not to be followed by another one. False if it was already.
    pub(crate) fn bind(&mut self, hold: u64) -> bool {
        self.bound |= self.present == hold;
        self.present == hold
    }

    /// The hold of this number is followed by the next one. False if it is bound.
    pub(crate) fn move_on(&mut self, hold: u64) -> bool {
        let moves = self.present == hold && !self.bound;
        if moves {
            self.present = hold.wrapping_add(1);
            self.lease = None;
        }
        moves
    }

    /// The lease of the hold of this number, if that is the present one.
    pub(crate) fn lease(&self, hold: u64) -> Option<&Lease> {
        self.lease.as_ref().filter(|_| self.present == hold)
    }

    /// The same, to be changed.
    pub(crate) fn lease_mut(&mut self, hold: u64) -> Option<&mut Lease> {
        self.lease.as_mut().filter(|_| self.present == hold)
    }

    /// Ends the hold of this number, and returns what is left of its lease, `None` if it was lost; and its new
    /// state, if that has changed.
    ///
    /// Both in one step: from then on the keeper cannot end it by a limit any more. That would release the claim,
    /// which the next task of this process may hold by then.
    pub(crate) fn end(&mut self, hold: u64, now: Moment) -> (Option<Left>, Option<LeaseState>) {
        let left = self.lease(hold).and_then(|lease| lease.left(now));
        (left, self.step(hold, now, Event::Released).1)
    }

    /// Steps the lease of the hold of this number. Returns its new state too, if that has changed.
    pub(crate) fn step(&mut self, hold: u64, now: Moment, event: Event) -> (Advice, Option<LeaseState>) {
        let Some(lease) = self.lease_mut(hold) else { return (Advice::Done, None) };
        let before = lease.state();
        let advice = lease.on(now, event);
        let after = lease.state();
        (advice, (before != after).then_some(after))
    }
}
