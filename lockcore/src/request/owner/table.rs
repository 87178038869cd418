//! The locks of an owner, by name.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{MutexGuard, Notify};

use crate::local::Pulse;
use crate::system::{lock, wake_tasks};
use crate::{Claim, Clock, Error, ErrorKind, LockGuard, LockName, Mode, Result};

/// A task that takes the lock and was not polled for this time is woken up. If it is not polled for this time
/// again, the others of its owner do not wait for it.
const POLLED: Duration = Duration::from_millis(500);

/// The names that an owner holds, or is about to take.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<HashMap<LockName, Arc<OwnedName>>>);

/// The state of one name.
#[derive(Debug, Default)]
pub(super) struct OwnedName {
    /// Locked by the task of the owner that takes the lock; its other tasks wait for it, and then share the
    /// lock.
    pub(super) taking: tokio::sync::Mutex<()>,
    /// What shows whether somebody drives that task.
    pub(super) pulse: Pulse,
    /// Its claim, and what the owner holds.
    known: Mutex<(Option<Claim>, Weak<Hold>)>,
    /// Notified when the owner has got the lock.
    kept: Notify,
}

impl OwnedName {
    /// The lock, if the owner has it.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        lock(&self.known).1.upgrade()
    }

    pub(super) fn note_claim(&self, claim: Option<&Claim>) {
        lock(&self.known).0 = claim.cloned();
    }

    /// The error of a task that has waited for the one that takes the lock, if the server has left that one
    /// without an answer.
    pub(super) fn silence(&self) -> Option<Error> {
        lock(&self.known).0.clone()?.silence()
    }

    pub(super) fn keep(&self, hold: &Arc<Hold>) {
        lock(&self.known).1 = Arc::downgrade(hold);
        wake_tasks(|| self.kept.notify_waiters());
    }

    /// Resolves when the owner has the lock.
    pub(super) async fn held(&self) -> Arc<Hold> {
        loop {
            let kept = self.kept.notified();
            if let Some(held) = self.hold() {
                return held;
            }
            kept.await;
        }
    }

    /// Waits until no other task of the owner takes the lock. `None`: one does, and nobody drives it; or
    /// another one, which did not wait for that one either, has got the lock for the owner.
    pub(super) async fn turn(&self, clock: &Clock) -> Option<MutexGuard<'_, ()>> {
        loop {
            let polls = self.pulse.polls();
            for _ in 0..2 {
                let taking = async {
                    tokio::select! {
                        biased;
                        taking = self.taking.lock() => Some(taking),
                        held = self.held() => {
                            drop(held);
                            None
                        }
                    }
                };
                if let Some(taking) = clock.timeout(POLLED, taking).await {
                    return taking;
                }
                if self.pulse.polls() == polls {
                    self.pulse.wake();
                }
            }
            if self.pulse.polls() == polls {
                return None;
            }
        }
    }
}

/// A lock that guards of one owner share.
#[derive(Debug)]
pub(super) struct Hold {
    guard: Option<LockGuard>,
    name: LockName,
    /// The owner's table, from which the name is taken out when nobody needs it.
    table: Weak<Table>,
}

impl Table {
    pub(super) fn owned(&self, name: &LockName) -> Arc<OwnedName> {
        let mut names = lock(&self.0);
        match names.get(name) {
            Some(owned) => Arc::clone(owned),
            None => Arc::clone(names.entry(name.clone()).or_default()),
        }
    }

    pub(super) fn hold(self: &Arc<Self>, guard: LockGuard) -> Arc<Hold> {
        let name = guard.name().clone();
        Arc::new(Hold { guard: Some(guard), name, table: Arc::downgrade(self) })
    }

    /// Removes a name that no task of this owner holds or waits for.
    pub(super) fn forget(&self, name: &LockName) {
        let mut names = lock(&self.0);
        // One handle is the table's own; a task that is about to take the lock has another.
        let unused = |owned: &Arc<OwnedName>| {
            Arc::strong_count(owned) == 1 && lock(&owned.known).1.strong_count() == 0
        };
        if names.get(name).is_some_and(unused) {
            names.remove(name);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Hold {
    fn guard(&self) -> &LockGuard {
        self.guard.as_ref().expect("a hold has its guard until it is dropped")
    }

    /// Whether the owner may take the lock again in this mode.
    pub(super) fn again(&self, mode: Mode) -> Result<()> {
        let held = self.guard().mode();
        if !self.guard().is_held() {
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

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(table) = self.table.upgrade() {
            table.forget(&self.name);
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
        let checked = self.0.guard().check();
        // Of guards that are released at the same time, one is the last.
        let Some(mut hold) = Arc::into_inner(self.0) else { return checked };
        match hold.guard.take() {
            // The hold is dropped after it, which removes the name, even if the caller does not wait for the
            // answer.
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        self.0.guard()
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard").field("depth", &self.depth()).field("guard", self.0.guard()).finish()
    }
}
