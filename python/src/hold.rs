//! What holds a lock: a guard of its own, or one of those of an owner.

use std::sync::Mutex;

use lockwell::backend::lock;
use lockwell::{LeaseState, LockGuard, LockHandle, ReentrantGuard, Result};

use crate::awaited::Awaited;
use crate::runtime::RUNTIME;

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

/// Where a lock is held. It is taken from there when it is released.
pub(crate) type Place = Mutex<Option<Hold>>;

/// Releases a lock in the background, if it was not released.
pub(crate) fn drop_soon(place: &Place) {
    let Some(hold) = lock(place).take() else { return };
    let Ok(runtime) = RUNTIME.get() else { return drop(hold) };
    let awaited = Awaited::new();
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        if let Err(error) = hold.release().await {
            tracing::info!(error = format!("{error:#}"), "a release in the background");
        }
        drop(awaited);
    }));
}
