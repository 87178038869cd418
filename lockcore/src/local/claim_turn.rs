//! The turn to claim.

use std::fmt;
use std::sync::Arc;

use super::pulse::Pulse;
use super::{LocalQueues, Next, Waiter};
use crate::lease::PassOn;
use crate::{HandOver, LockName};

/// The turn to claim a name at the server for all of this process. Dropping it passes it on.
pub(crate) struct ClaimTurn<T> {
    queues: Arc<LocalQueues<T>>,
    name: LockName,
    number: u64,
    pulse: Arc<Pulse>,
}

impl<T> ClaimTurn<T> {
    pub(super) fn new(
        queues: &Arc<LocalQueues<T>>,
        name: &LockName,
        number: u64,
        pulse: &Arc<Pulse>,
    ) -> Self {
        Self { queues: Arc::clone(queues), name: name.clone(), number, pulse: Arc::clone(pulse) }
    }

    /// What shows whether somebody drives the claim.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// The lock is held from now on.
    pub(crate) fn note_held(&self) {
        self.pulse.note_held();
    }

    /// How often a lock may be handed on, if it may.
    pub(crate) fn hand_over(&self) -> Option<HandOver> {
        self.queues.hand_over()
    }

    /// Moves the turn to the first waiter, if that one fits. The answer is the new turn and who is to get it.
    pub(crate) fn to_first(&self, fits: impl Fn(&Waiter<T>) -> bool) -> Option<(Self, Waiter<T>)> {
        match self.queues.next(&self.name, self.number, fits) {
            Next::Waiter(turn, waiter) => Some((turn, waiter)),
            Next::Gone | Next::Nobody | Next::Other => None,
        }
    }

    /// Returns the number without passing the turn on: zero is no valid number.
    pub(super) fn into_number(mut self) -> u64 {
        std::mem::replace(&mut self.number, 0)
    }
}

impl<T: Send> PassOn for ClaimTurn<T> {
    fn pass_on(&self) {
        self.queues.pass_on(&self.name, self.number);
    }
}

impl<T> Drop for ClaimTurn<T> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.queues.pass_on(&self.name, self.number);
        }
    }
}

impl<T> fmt::Debug for ClaimTurn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimTurn")
            .field("name", &self.name)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
