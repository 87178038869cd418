//! The locks that are held together: one, or several.

use std::time::Duration;

use lockwell::{FencingToken, LockAllGuard, LockGuard, LockName, Loss, Result};

/// One lock, or several together.
pub(crate) enum Hold {
    One(LockGuard),
    All(LockAllGuard),
}

impl Hold {
    pub(crate) fn guards(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => std::slice::from_ref(guard),
            Self::All(all) => all.guards(),
        }
    }

    /// Each token with its lock.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (FencingToken, &LockName)> {
        self.guards().iter().map(|guard| (guard.token(), guard.name()))
    }

    /// The token of this lock.
    pub(crate) fn token(&self, name: &LockName) -> Option<FencingToken> {
        self.guard(name).map(LockGuard::token)
    }

    /// The guard of this lock.
    pub(crate) fn guard(&self, name: &LockName) -> Option<&LockGuard> {
        self.guards().iter().find(|guard| guard.name() == name)
    }

    /// For how long all of them are held, if nothing is renewed.
    pub(crate) fn time_left(&self) -> Duration {
        self.guards().iter().map(LockGuard::time_left).min().unwrap_or_default()
    }

    /// Reports progress of the work under them.
    pub(crate) fn progress(&self) {
        self.guards().iter().for_each(LockGuard::progress);
    }

    /// The lock of this name, and the others.
    pub(crate) fn split(self, name: &LockName) -> (Option<LockGuard>, Vec<LockGuard>) {
        let mut guards = match self {
            Self::One(guard) => vec![guard],
            Self::All(all) => all.into_guards(),
        };
        let own = guards.iter().position(|guard| guard.name() == name);
        (own.map(|own| guards.swap_remove(own)), guards)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.guards().iter().all(LockGuard::is_held)
    }

    /// Which lock was lost, and how.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn lost(&self) -> (LockName, Loss) {
        match self {
            Self::One(guard) => {
                let loss = guard.lost().await;
                (guard.name().clone(), loss)
            }
            Self::All(all) => all.lost().await,
        }
    }

    /// Why the last renewal of the lost lock has failed, if that is the cause.
    pub(crate) fn renewal_failure(&self) -> Option<String> {
        self.guards().iter().filter(|guard| !guard.is_held()).find_map(LockGuard::renewal_failure)
    }

    pub(crate) async fn release(self) -> Result<()> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::All(all) => all.release().await,
        }
    }
}
