//! The right to claim.

use std::fmt;
use std::sync::Arc;

use crate::LockName;
use crate::local::{LocalQueues, Pass};

/// The right to stand for this process at the server. Dropping it passes it on.
pub(crate) struct Right {
    queues: Arc<LocalQueues>,
    name: LockName,
    number: u64,
}

impl Right {
    pub(super) fn new(queues: &Arc<LocalQueues>, name: &LockName, number: u64) -> Self {
        Self { queues: Arc::clone(queues), name: name.clone(), number }
    }

    /// With the lock in hand: what its guard needs to pass it on, where that is wanted. Otherwise the next of this
    /// process goes to the server.
    pub(crate) fn pass(self) -> Option<Pass> {
        let hand_over = self.queues.hand_over()?;
        Some(Pass::new(self, hand_over))
    }

    pub(super) fn queues(&self) -> &Arc<LocalQueues> {
        &self.queues
    }

    pub(super) fn name(&self) -> &LockName {
        &self.name
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Takes the right apart without passing it on. What is left by the drop has no number that is valid.
    pub(super) fn into_number(mut self) -> u64 {
        std::mem::replace(&mut self.number, 0)
    }

    /// Passes the right on. Doing it twice does nothing.
    pub(crate) fn leave(&self) {
        self.queues.leave(&self.name, self.number);
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        if self.number != 0 {
            self.leave();
        }
    }
}

impl fmt::Debug for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Right")
            .field("name", &self.name)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
