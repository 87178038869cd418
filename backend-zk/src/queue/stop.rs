//! Why a waiter has to stop.

use lockwell_core::Error;

/// Why a waiter has to stop.
pub(crate) enum Stop {
    /// It is unknown whether the last request was executed.
    Unanswered,
    /// The last request was not executed, since the server has too many.
    Throttled,
    /// The session is over, and with it the place in the queue.
    SessionOver,
    /// The claim does not get the lock, and waits no longer.
    NotNow,
    /// The node is gone.
    Taken,
    /// The place in the queue was given up, since nobody polled the claim.
    GivenUp,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
