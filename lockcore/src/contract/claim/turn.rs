//! The turn of a claim in the queue of its process.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use crate::system::lock;

/// A turn, for which other tasks of this process may wait.
pub(crate) trait PassOn: Debug + Send + Sync {
    /// Passes the turn on to the next task. A second call does nothing.
    fn pass_on(&self);
}

/// Where a claim has its turn, if it has one, or its place in the queue before that.
///
/// The turn is passed on when the claim has been released, holds nothing or has lost its lock, or when the
/// keeper releases it. It does not end with the handles to the claim, since a backend may have one for long.
#[derive(Default)]
pub(crate) struct TurnSlot(Mutex<Option<Arc<dyn PassOn>>>);

impl TurnSlot {
    /// Puts a turn here. A lock that is handed on keeps its claim, which gets the turn of the next task.
    pub(crate) fn put(&self, turn: Arc<dyn PassOn>) {
        let before = lock(&self.0).replace(turn);
        // Outside of the mutex: dropping a turn may pass it on.
        drop(before);
    }

    /// Takes the turn away without passing it on.
    pub(crate) fn take(&self) -> Option<Arc<dyn PassOn>> {
        lock(&self.0).take()
    }

    /// Passes the turn on. Wakers of the application run in here.
    pub(crate) fn pass_on(&self) {
        if let Some(turn) = self.take() {
            turn.pass_on();
        }
    }
}
