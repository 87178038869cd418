//! What holds a lock: a guard of its own, or one of those of an owner.

use lockwell::{LeaseState, LockGuard, LockHandle, ReentrantGuard, Result};

/// What holds a lock.
pub(crate) enum Hold {
    Sole(LockGuard),
    /// One of the guards of an owner.
    Shared(ReentrantGuard),
}

impl Hold {
    pub(crate) fn handle(&self) -> LockHandle {
        match self {
            Self::Sole(guard) => guard.handle(),
            Self::Shared(guard) => guard.handle(),
        }
    }

    pub(crate) async fn release(self) -> Result<()> {
        let guard = match self {
            Self::Sole(guard) => return guard.release().await,
            Self::Shared(guard) => guard,
        };
        let handle = guard.handle();
        guard.release().await?;
        // Only the last guard asks the server.
        if let LeaseState::Lost(_) = handle.lease_state() { handle.check() } else { Ok(()) }
    }
}
