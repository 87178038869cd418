//! The turn of a claim in the queue of its process.

use std::fmt::Debug;

/// A turn, for which other tasks of this process may wait.
pub(crate) trait PassOn: Debug + Send + Sync {
    /// Passes the turn on to the next task. A second call does nothing.
    fn pass_on(&self);
}
