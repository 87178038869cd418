//! Locks that one owner may take again.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};

use crate::request::{Again, LockRequest};
use crate::sync::lock;
use crate::{Error, ErrorKind, LockGuard, LockName, Locks, Mode, Result};

tokio::task_local! {
    static CURRENT: Owner;
}

/// Somebody who may take a lock again that it holds already. [`Locks::owner`] makes one; clones are the same owner.
///
/// Taking a name again succeeds at once, without a word to the server, and yields the same [token]; it is the same hold,
/// with the ttl and the limits of the first request. The lock is free when the last guard of the owner has gone. Two
/// owners exclude each other, in one process as in two. An owner can be shared by tasks: then they are one holder
/// together, and are *not* excluded from each other.
///
/// A writer may take its lock again as a reader; it stays a writer. A reader that wants to become a writer is refused
/// by an error of kind [`WouldDeadlock`](ErrorKind::WouldDeadlock): two readers who both wait for the other to leave
/// would wait for ever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockcore::Result<()> {
/// let locks = lockcore::Locks::in_memory();
/// let owner = locks.owner();
/// let outer = owner.lock("orders/42").await?;
/// let inner = owner.lock("orders/42").await?;
/// assert_eq!(outer.token(), inner.token());
/// drop(outer);
/// assert!(locks.lock("orders/42").try_now().await?.is_none(), "the inner guard keeps it");
/// inner.release().await?;
/// # Ok(()) }
/// ```
///
/// [token]: LockGuard::token
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    locks: Locks,
    places: Mutex<HashMap<LockName, Arc<Place>>>,
}

/// What an owner knows of one name.
#[derive(Default)]
pub(crate) struct Place {
    /// Held by the task of the owner that takes the lock; its siblings wait for it, and then share the lock.
    pub(crate) taking: tokio::sync::Mutex<()>,
    hold: Mutex<Weak<Hold>>,
}

impl Place {
    /// The lock, if the owner has it.
    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        lock(&self.hold).upgrade()
    }

    pub(crate) fn keep(&self, hold: &Arc<Hold>) {
        *lock(&self.hold) = Arc::downgrade(hold);
    }
}

/// A lock that guards of one owner share.
pub(crate) struct Hold {
    guard: Option<LockGuard>,
    name: LockName,
    /// The way back to the owner's table; the place is taken out when nobody needs it.
    owner: Weak<Inner>,
}

impl Owner {
    pub(crate) fn new(locks: Locks) -> Self {
        Self(Arc::new(Inner { locks, places: Mutex::default() }))
    }

    /// A request for the lock, alone. Taken again by this owner, it is the same one.
    pub fn lock<N>(&self, name: N) -> LockRequest<Again>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Again::request(self, self.0.locks.lock(name))
    }

    /// A request for the writer's side of a reader-writer lock. The same as [`lock`](Self::lock).
    pub fn write<N>(&self, name: N) -> LockRequest<Again>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.lock(name)
    }

    /// A request for the reader's side of a reader-writer lock.
    pub fn read<N>(&self, name: N) -> LockRequest<Again>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Again::request(self, self.0.locks.read(name))
    }

    /// A request for a permit of a semaphore. Taken again by this owner, it is the same permit.
    pub fn permit<N>(&self, name: N, limit: u32) -> LockRequest<Again>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Again::request(self, self.0.locks.permit(name, limit))
    }

    /// Runs a future as this owner: what it calls can find it by [`current`](Self::current). Tasks that it spawns do
    /// not inherit it.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The owner in whose [`scope`](Self::scope) this runs.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub(crate) fn place(&self, name: &LockName) -> Arc<Place> {
        let mut places = lock(&self.0.places);
        match places.get(name) {
            Some(place) => Arc::clone(place),
            None => Arc::clone(places.entry(name.clone()).or_default()),
        }
    }

    /// How many names it remembers.
    #[cfg(test)]
    pub(crate) fn names(&self) -> usize {
        lock(&self.0.places).len()
    }

    pub(crate) fn hold(&self, guard: LockGuard) -> Arc<Hold> {
        let name = guard.name().clone();
        Arc::new(Hold { guard: Some(guard), name, owner: Arc::downgrade(&self.0) })
    }

    pub(crate) fn forget(&self, name: &LockName) {
        self.0.forget(name);
    }
}

impl Inner {
    /// Forgets a name that nobody of this owner holds or waits for.
    fn forget(&self, name: &LockName) {
        let mut places = lock(&self.places);
        // One handle is the table's own; whoever is about to take the lock has another.
        let unused =
            |place: &Arc<Place>| Arc::strong_count(place) == 1 && lock(&place.hold).strong_count() == 0;
        if places.get(name).is_some_and(unused) {
            places.remove(name);
        }
    }
}

impl Hold {
    fn guard(&self) -> &LockGuard {
        self.guard.as_ref().expect("a hold has its guard until it is dropped")
    }

    /// Whether the owner may take the lock again in this mode.
    pub(crate) fn again(&self, mode: Mode) -> Result<()> {
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
            (held, mode) => Err(Mode::clash(held, mode)),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.guard.take());
        if let Some(owner) = self.owner.upgrade() {
            owner.forget(&self.name);
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("locks", &self.0.locks).finish_non_exhaustive()
    }
}

/// One of the guards by which an [`Owner`] holds a lock. The lock is given up when the last of them is dropped.
///
/// It shows what the [`LockGuard`] behind it shows.
#[must_use = "if unused the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard(Arc<Hold>);

impl ReentrantGuard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }

    /// How many guards of the owner hold the lock, this one included.
    pub fn depth(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Drops this guard. If it is the last one, the lock is given up as by [`LockGuard::release`], and the answer is the
    /// server's.
    ///
    /// # Cancel safety
    /// As [`LockGuard::release`].
    pub async fn release(self) -> Result<()> {
        // Of guards that are released at the same time, one is the last.
        let Some(mut hold) = Arc::into_inner(self.0) else { return Ok(()) };
        match hold.guard.take() {
            // The hold is dropped behind it, which forgets the name, whether the answer comes or nobody waits for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_owner_holds_it_gets_at_once_in_every_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let owner = Locks::in_memory().owner();
        let first = runtime.block_on(owner.lock("a").into_future()).unwrap();
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for _ in 0..20_000 {
                        let again = runtime.block_on(owner.lock("a").try_now()).unwrap();
                        assert!(again.is_some(), "the owner holds it all the time");
                    }
                });
            }
        });
        drop(first);
    }
}
