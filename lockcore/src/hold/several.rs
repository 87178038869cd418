//! Several locks in one guard.

use std::fmt;

use futures_util::future::{join_all, select_all};

use crate::life::Limits;
use crate::{Error, ErrorKind, FencingToken, LockGuard, LockName, Loss, Result};

/// Several held locks, which [`Locks::lock_all`](crate::Locks::lock_all) has taken together. Dropping it
/// releases all of them.
///
/// Each lock has its own token and can be lost separately. Work under several locks is protected only while
/// all of them are held.
#[must_use = "bind it: `let _guard = ...`; `let _ = ...` releases the locks at once"]
#[clippy::has_significant_drop]
pub struct LockAllGuard {
    guards: Vec<LockGuard>,
}

impl LockAllGuard {
    /// The guards, with limits that count from now, when all are held.
    pub(crate) fn limited(guards: Vec<LockGuard>, limits: Limits) -> Self {
        for guard in &guards {
            guard.limit(limits);
        }
        Self { guards }
    }

    /// The guards, in the order of the names.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The token of one of the locks; `None` if the name is not among them.
    pub fn token(&self, name: &LockName) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name() == name).map(LockGuard::token)
    }

    /// Whether all locks are held now, by the clock.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(LockGuard::is_held)
    }

    /// Reports progress for all of them: see [`LockRequest::progress_within`](crate::LockRequest::progress_within).
    pub fn progress(&self) {
        self.guards.iter().for_each(LockGuard::progress);
    }

    /// Resolves when one of the locks is lost. Returns its name and the reason. Pending for ever if there are
    /// no locks.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn lost(&self) -> (LockName, Loss) {
        let (guard, loss) = first_lost(&self.guards).await;
        (guard.name().clone(), loss)
    }

    /// The single guards, so that the caller can release them one by one.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }

    /// Releases all locks at the same time, and waits for the answers. If one of them was lost, that is the
    /// error that is returned, otherwise the first in the order of the names; the others are released all the
    /// same. See [`LockGuard::release`].
    ///
    /// # Cancel safety
    /// The releases go on in the background when this future is dropped; only the answers are lost.
    pub async fn release(self) -> Result<()> {
        let answers = join_all(self.guards.into_iter().map(LockGuard::release)).await;
        let mut errors: Vec<Error> = answers.into_iter().filter_map(Result::err).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let lost = errors.iter().position(|error| error.kind() == ErrorKind::Lost);
        Err(errors.swap_remove(lost.unwrap_or(0)))
    }
}

/// Resolves when one of these locks is lost. Returns its guard and the reason.
pub(crate) async fn first_lost(guards: &[LockGuard]) -> (&LockGuard, Loss) {
    match guards {
        [] => std::future::pending().await,
        // Most work is done under one lock, which needs no list of futures.
        [guard] => (guard, guard.lost().await),
        _ => {
            let (loss, which, _) = select_all(guards.iter().map(|guard| Box::pin(guard.lost()))).await;
            (&guards[which], loss)
        }
    }
}

impl fmt::Debug for LockAllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}
