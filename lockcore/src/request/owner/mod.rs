//! Owners: re-entrant locks.

mod reentrant;
mod table;

use std::fmt;
use std::sync::Arc;

pub use reentrant::Reentrant;
pub use table::ReentrantGuard;
use table::Table;

use super::{Choices, LockRequest, permit};
use crate::background::Book;
use crate::local::{LocalQueues, Sharing};
use crate::{Error, LockName, Mode, Result};

tokio::task_local! {
    static CURRENT: Owner;
}

/// An owner of re-entrant locks: it may take a lock again that it holds.
/// [`Locks::owner`](crate::Locks::owner) makes one; clones are the same owner.
///
/// Taking a name again succeeds at once, without a request to the server, and yields the same [token]. It is
/// the same hold, with the ttl and the limits of the first request. The lock is released when the last guard
/// of the owner is dropped. Two owners exclude each other, in one process or in two. Tasks can share an
/// owner: they are one holder then, and do *not* exclude each other.
///
/// A writer may take its lock again as a reader; it stays a writer. A reader cannot become a writer: the
/// request fails with [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock), since two readers that wait for
/// each other would wait for ever.
///
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// let locks = lockwell::Locks::in_memory();
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
/// [token]: crate::LockGuard::token
#[derive(Clone)]
pub struct Owner(Arc<OwnerInner>);

struct OwnerInner {
    book: Arc<Book>,
    defaults: Choices,
    table: Arc<Table>,
}

impl Owner {
    pub(crate) fn new(book: &Arc<Book>, defaults: &Choices) -> Self {
        Self(Arc::new(OwnerInner {
            book: Arc::clone(book),
            defaults: Choices {
                local: Some(LocalQueues::new(Sharing::Owned, book.clock.clone())),
                ..defaults.clone()
            },
            table: Arc::default(),
        }))
    }

    fn request<N: TryInto<LockName, Error: Into<Error>>>(
        &self,
        name: N,
        mode: Result<Mode>,
    ) -> LockRequest<Reentrant> {
        let one = LockRequest::one(&self.0.book, &self.0.defaults, name, mode);
        Reentrant::request(&self.0.table, one)
    }

    /// A request for the exclusive lock. If this owner holds it already, it is the same lock.
    #[doc(alias = "mutex")]
    pub fn lock<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest<Reentrant> {
        self.request(name, Ok(Mode::Exclusive))
    }

    /// A request for the writer's side of a reader-writer lock. The same as [`lock`](Self::lock).
    pub fn write<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest<Reentrant> {
        self.lock(name)
    }

    /// A request for the reader's side of a reader-writer lock.
    pub fn read<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> LockRequest<Reentrant> {
        self.request(name, Ok(Mode::Shared))
    }

    /// A request for a permit of a semaphore. If this owner holds one already, it is the same permit.
    #[doc(alias = "semaphore")]
    pub fn permit<N: TryInto<LockName, Error: Into<Error>>>(
        &self,
        name: N,
        limit: u32,
    ) -> LockRequest<Reentrant> {
        self.request(name, permit(limit))
    }

    /// Runs a future as this owner: functions that it calls get the owner from [`current`](Self::current).
    /// Tasks that it spawns do not inherit it.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// The owner of the current [`scope`](Self::scope).
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// How many names it remembers.
    #[cfg(test)]
    pub(crate) fn names(&self) -> usize {
        self.0.table.len()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("backend", &self.0.book.backend).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::{Reentrant, Table};
    use crate::{LockGuard, LockRequest, Locks, MemoryLock, Mode, TestClock};

    type OwnedRequest = <LockRequest<Reentrant> as IntoFuture>::IntoFuture;

    #[tokio::test]
    async fn a_future_that_is_not_polled_blocks_no_other_of_its_owner() {
        let locks = Locks::in_memory();
        let owner = locks.owner();
        let held = locks.lock("a").await.unwrap();
        let lease = Duration::from_millis(500);
        let mut idle = Box::pin(owner.lock("a").ttl(lease).into_future());
        assert!(idle.as_mut().now_or_never().is_none(), "it is held");
        // It is granted to the one that is not polled, and nothing renews its lease.
        held.release().await.unwrap();
        let guard = owner.lock("a").wait(Duration::from_secs(20)).await.expect("it is free again");
        assert!(guard.is_held());
        let same = idle.await.expect("its owner has it");
        assert_eq!((same.token(), same.depth()), (guard.token(), 2));
        drop((guard, same));
        assert_eq!(owner.names(), 0);
    }

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

    /// Three tasks of an owner wait for another client's lock, and the first of them leaves.
    async fn the_first_leaves(wants: [Mode; 2]) -> (LockGuard, [OwnedRequest; 2], Locks) {
        let server = Arc::new(MemoryLock::with_clock(TestClock::new().clock()));
        let (one, two) = (Locks::new(server.clone()).unwrap(), Locks::new(server).unwrap());
        let held = two.lock("a").await.unwrap();
        let owner = one.owner();
        let waits = |mode| {
            let mut request = owner.request("a", Ok(mode)).into_future();
            assert!(request.as_mut().now_or_never().is_none(), "it is held");
            request
        };
        let [first, second, third] = [Mode::Shared, wants[0], wants[1]].map(waits);
        drop(first);
        tokio::task::yield_now().await;
        (held, [second, third], two)
    }

    #[tokio::test]
    async fn tasks_of_an_owner_keep_the_place_of_the_first_in_every_mode() {
        let (held, [second, third], two) = the_first_leaves([Mode::Shared; 2]).await;
        assert_eq!(two.inspect("a").await.unwrap().waiters, 1, "the tasks have one place");
        let mut other = Box::pin(two.lock("a").into_future());
        assert!(other.as_mut().now_or_never().is_none(), "it is held");
        drop(held);
        let second = second.await.unwrap();
        let third = third.await.unwrap();
        assert_eq!((second.mode(), third.depth()), (Mode::Shared, 2));
        drop((second, third));
        drop(other.await.unwrap());
    }

    #[tokio::test]
    async fn a_writer_of_an_owner_does_not_wait_for_the_lock_of_a_reader_that_has_left() {
        let (held, [mut second, third], two) = the_first_leaves([Mode::Exclusive, Mode::Shared]).await;
        let waiters = async || two.inspect("a").await.unwrap().waiters;
        let leaves = async {
            while waiters().await > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), leaves).await.expect("its place is of use to nobody");
        while waiters().await == 0 {
            assert!(second.as_mut().now_or_never().is_none(), "it is held");
            tokio::task::yield_now().await;
        }
        drop(held);
        let second = second.await.unwrap();
        let third = third.await.unwrap();
        assert_eq!((second.mode(), third.depth()), (Mode::Exclusive, 2));
    }

    #[tokio::test]
    async fn of_two_locks_an_owner_keeps_the_first() {
        let locks = Locks::in_memory();
        let table = Arc::<Table>::default();
        let [first, second] = [locks.read("a").await.unwrap(), locks.read("a").await.unwrap()];
        let hold = table.keep(first);
        assert!(Arc::ptr_eq(&hold, &table.keep(second)), "it has two");
        while locks.inspect("a").await.unwrap().holders.len() > 1 {
            tokio::task::yield_now().await;
        }
        drop(hold);
        assert_eq!(table.len(), 0);
    }
}
