//! A held lock on its way to the next task.

use crate::background::{AcquireStatus, Armed};
use crate::{Grant, Moment};

/// A held lock between two tasks. It is not renewed meanwhile: its lease is fresh, and the hand-off is short.
/// Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct HandedLock {
    pub(crate) armed: Option<Armed>,
    pub(crate) grant: Grant,
    /// How many more times it may be handed on, and until when.
    pub(crate) times: u32,
    pub(crate) until: Moment,
}

impl Drop for HandedLock {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            // The next task claims after the release, or after the keeper has taken it over.
            armed.release_in_background(AcquireStatus::Answered);
        }
    }
}
