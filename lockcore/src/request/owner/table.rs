//! The locks of an owner, by name.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;

use crate::system::{lock, wake_tasks};
use crate::{Error, ErrorKind, LockGuard, LockName, Mode, Result};

/// The locks that an owner holds.
#[derive(Debug, Default)]
pub(super) struct Table {
    holds: Mutex<HashMap<LockName, Weak<Hold>>>,
    /// Notified when the owner has got a lock.
    kept: Notify,
}

/// A lock that guards of one owner share.
#[derive(Debug)]
pub(super) struct Hold {
    guard: LockGuard,
    /// Dropped after the guard, or while that is released.
    entry: Entry,
}

/// A name in the table of its owner. Dropping it removes the name.
#[derive(Debug)]
struct Entry {
    table: Weak<Table>,
    name: LockName,
}

impl Table {
    /// The owner has got a lock. If another task of it has got the lock as well, it keeps that one.
    pub(super) fn keep(self: &Arc<Self>, guard: LockGuard) -> Arc<Hold> {
        let name = guard.name().clone();
        let hold = Arc::new(Hold { guard, entry: Entry { table: Arc::downgrade(self), name: name.clone() } });
        {
            let mut holds = lock(&self.holds);
            if let Some(before) = holds.get(&name).and_then(Weak::upgrade) {
                return before;
            }
            holds.insert(name, Arc::downgrade(&hold));
        }
        wake_tasks(|| self.kept.notify_waiters());
        hold
    }

    /// Resolves when the owner has this lock.
    pub(super) async fn held(&self, name: &LockName) -> Arc<Hold> {
        loop {
            let kept = self.kept.notified();
            let hold = lock(&self.holds).get(name).and_then(Weak::upgrade);
            if let Some(hold) = hold {
                return hold;
            }
            kept.await;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.holds).len()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(table) = self.table.upgrade() else { return };
        let mut holds = lock(&table.holds);
        // It may be that of a later hold.
        if holds.get(&self.name).is_some_and(|hold| hold.strong_count() == 0) {
            holds.remove(&self.name);
        }
    }
}

impl Hold {
    /// Whether the owner may take the lock again in this mode.
    pub(super) fn again(&self, mode: Mode) -> Result<()> {
        let held = self.guard.mode();
        if !self.guard.is_held() {
            let message = "this owner has lost the lock, and has guards of it still: drop them first";
            return Err(Error::new(ErrorKind::Lost, message));
        }
        match (held, mode) {
            (Mode::Exclusive, Mode::Shared) => Ok(()),
            (Mode::Shared, Mode::Exclusive) => Err(Error::new(
                ErrorKind::WouldDeadlock,
                "this owner holds the lock as a reader, and a reader cannot become a writer: two readers who tried would \
                 wait for each other for ever; release, lock as a writer, and read again",
            )),
            (held, mode) if held == mode => Ok(()),
            (held, mode) => Err(Error::new(
                ErrorKind::WouldDeadlock,
                format!("this owner holds the lock as {held}, and would wait for itself as {mode}"),
            )),
        }
    }
}

/// One of the guards by which an [`Owner`](crate::Owner) holds a lock. The lock is released when the last of
/// them is dropped.
///
/// It dereferences to the [`LockGuard`].
#[must_use = "bind it: `let _guard = ...`; `let _ = ...` releases the lock at once"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard(Arc<Hold>);

impl ReentrantGuard {
    pub(super) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }

    /// How many guards of the owner hold the lock, this one included.
    pub fn depth(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Drops this guard. If it is the last one, the lock is released as by [`LockGuard::release`], and the
    /// answer is the server's. Otherwise the lock stays held.
    ///
    /// # Errors
    /// Those of [`LockGuard::release`] if this is the last guard, otherwise those of [`LockGuard::check`]:
    /// the lock may be lost.
    ///
    /// # Cancel safety
    /// As [`LockGuard::release`].
    pub async fn release(self) -> Result<()> {
        // Another task of the owner may be about to take the lock again, and may drop its handle when it
        // finds the lock lost. So this guard can be the last one that works under the lock without being the
        // last.
        let checked = self.0.guard.check();
        // Of guards that are released at the same time, one is the last.
        let Some(Hold { guard, entry }) = Arc::into_inner(self.0) else { return checked };
        // The name is free, even if the caller does not wait for the answer.
        drop(entry);
        guard.release().await
    }
}

impl Deref for ReentrantGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.0.guard
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard").field("depth", &self.depth()).field("guard", &self.0.guard).finish()
    }
}
