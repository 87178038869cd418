//! A held lock on its way to the next task.

use std::sync::Arc;

use tracing::Span;

use crate::background::Stub;
use crate::contract::PassOn;
use crate::{Claim, Grant, Moment};

/// A held lock between two tasks. It is not renewed meanwhile: its lease is fresh, and the hand-off is short.
/// Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct HandedLock {
    pub(crate) stub: Option<Stub>,
    pub(crate) grant: Grant,
    /// How many more times it may be handed on, and until when.
    pub(crate) times: u32,
    pub(crate) until: Moment,
}

impl HandedLock {
    /// Whether a claim that waits can have the lock.
    pub(super) fn fits(&self, waits: &Claim) -> bool {
        is_alike(self.grant.claim(), waits)
    }

    /// The task with this turn takes it. Whatever releases the lock passes on this turn, which is the valid one.
    pub(super) fn belongs_to(&self, turn: Arc<dyn PassOn>) {
        self.grant.claim().put_turn(turn);
        // The task that claimed the lock may have left, and this one has not.
        self.grant.claim().adopt();
    }

    /// Releases the lock, and passes on the turn after that.
    pub(super) fn release(self, turn: Arc<dyn PassOn>) {
        self.grant.claim().put_turn(turn);
    }
}

/// Whether both claims ask for the same mode and lease, under the same label.
pub(super) fn is_alike(one: &Claim, other: &Claim) -> bool {
    one.mode() == other.mode()
        && one.ttl() == other.ttl()
        && one.lock_delay() == other.lock_delay()
        && one.label() == other.label()
}

impl Drop for HandedLock {
    fn drop(&mut self) {
        if let Some(stub) = self.stub.take() {
            // The next task claims after the release, or after the keeper has taken it over.
            stub.release_in_background(true, Span::none());
        }
    }
}
