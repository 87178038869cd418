//! Acquires that are given up, since their callers leave or the client is closed, while locks are granted and
//! handed on.

use futures_util::FutureExt;

use super::wakers::{Waiting, woken};
use super::*;
use crate::background::Book;
use crate::{Mode, Wait};

struct World {
    server: Arc<Chosen>,
    /// The claim of another process, which holds the lock.
    holder: Claim,
    locks: Locks,
    book: Arc<Book>,
}

impl World {
    /// The lock is held, and a client is to wait for it.
    async fn new(answers: impl IntoIterator<Item = (Duration, Released)>) -> Self {
        // It stands still, so that the keeper does nothing by itself.
        let clock = TestClock::new().clock();
        let answers = Mutex::new(answers.into_iter().collect());
        let server =
            Arc::new(Chosen { inner: MemoryLock::with_clock(clock.clone()), answers, ..Chosen::default() });
        let name = LockName::new("a").unwrap();
        let holder = Claim::new(name, Mode::Exclusive, LEASE, Wait::No, "other".into()).with_clock(clock);
        server.inner.acquire(&holder).await.unwrap().expect("it is free");
        let locks = Locks::new(Arc::clone(&server) as Arc<dyn DistributedLock>).unwrap().hand_off(9, LEASE);
        let book = Arc::clone(&locks.lock("a").book);
        Self { server, holder, locks, book }
    }

    /// The claim that has come first.
    fn first(&self) -> Claim {
        let rows = self.book.rows();
        let (_, row) = rows.slab.iter().next().expect("a claim");
        row.claim.clone()
    }

    fn waiting(&self) -> Waiting {
        Box::pin(self.locks.lock("a").ttl(LEASE).into_future())
    }

    /// A task waits at the server, and its caller leaves while this one waits behind it.
    async fn left_before(&self, next: &mut Waiting, on_wake: impl Fn(&Claim) + Send + Sync + 'static) {
        let mut first = self.waiting();
        assert!(first.as_mut().now_or_never().is_none());
        let claim = self.first();
        let on_wake = move || on_wake(&claim);
        woken(next, on_wake);
        drop(first);
        tasks_run().await;
    }
}

/// The tasks of this runtime run until they wait.
async fn tasks_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_keeper_does_not_release_a_lock_that_was_handed_on() {
    let world = World::new([]).await;
    let mut next = world.waiting();
    let (book, taken) = (Arc::clone(&world.book), Arc::new(Mutex::new(None)));
    let on_wake = {
        let taken = Arc::clone(&taken);
        // The lock has been handed on, and the acquire has not ended.
        move |first: &Claim| {
            lock(&taken).get_or_insert_with(|| book.give_up(first));
        }
    };
    world.left_before(&mut next, on_wake).await;
    world.server.inner.release(&world.holder).await.unwrap();
    tasks_run().await;
    assert_eq!(*lock(&taken), Some(false));
    let guard = next.await.unwrap();
    assert_eq!(world.server.releases.load(Ordering::SeqCst), 0);
    guard.release().await.expect("it was held until then");
}

#[tokio::test]
async fn a_close_does_not_release_a_lock_that_was_granted() {
    let world = World::new([]).await;
    world.server.inner.release(&world.holder).await.unwrap();
    let guard = world.waiting().await.unwrap();
    assert!(!world.book.give_up(guard.grant().claim()));
    assert_eq!(world.book.drain(&Clock::system().limit(LEASE / 4)).await, 0);
    guard.release().await.expect("it was held until then");
}

#[tokio::test]
async fn what_the_keeper_has_given_up_is_not_handed_on() {
    // The keeper has no answer to its release.
    let world = World::new([(LEASE, Released::Released)]).await;
    let mut next = world.waiting();
    world.left_before(&mut next, |_| ()).await;
    let first = world.first();
    assert!(world.book.give_up(&first));
    assert!(!world.book.give_up(&first), "once");
    let asked = || world.server.releases.load(Ordering::SeqCst);
    while asked() == 0 {
        tokio::time::sleep(millis(5)).await;
    }
    world.server.inner.release(&world.holder).await.unwrap();
    let guard = next.await.unwrap();
    assert_eq!(asked(), 2, "the grant that came later was released as well");
    guard.release().await.expect("it was held until then");
}

#[tokio::test]
async fn a_lock_that_is_handed_on_during_a_close_is_released() {
    let world = World::new([]).await;
    world.server.inner.release(&world.holder).await.unwrap();
    let guard = world.waiting().await.unwrap();
    let mut next = world.waiting();
    let woken_up = Arc::new(AtomicBool::new(false));
    let on_wake = {
        let woken_up = Arc::clone(&woken_up);
        move || woken_up.store(true, Ordering::SeqCst)
    };
    woken(&mut next, on_wake);
    drop(guard);
    assert!(woken_up.load(Ordering::SeqCst), "the lock is handed on");
    let closing = tokio::spawn(world.locks.close());
    tasks_run().await;
    assert_eq!(next.await.unwrap_err().kind(), ErrorKind::Closed);
    closing.await.unwrap().unwrap();
    assert!(!world.server.inspect(world.holder.name()).await.unwrap().is_held());
}

#[tokio::test]
async fn no_place_is_kept_for_a_waiter_whose_runtime_is_not_driven() {
    let (server, locks) = chosen([]);
    let other = Locks::new(server).unwrap();
    let _guard = other.lock("a").ttl(LEASE).await.unwrap();
    let waiting = || -> Waiting { Box::pin(locks.lock("a").ttl(LEASE).into_future()) };
    let (mut first, mut next) = (waiting(), waiting());
    assert!(first.as_mut().now_or_never().is_none());
    assert!(next.as_mut().now_or_never().is_none());
    drop(first);
    tasks_run().await;
    let waiters = async || other.inspect("a").await.unwrap().waiters;
    assert_eq!(waiters().await, 1, "the place is kept for the next");
    let undriven = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let inside = undriven.enter();
    drop(next);
    drop(inside);
    let began = Moment::now();
    while waiters().await > 0 {
        assert!(Moment::now().since(began) < LEASE / 4, "nobody wants the place any more");
        tokio::time::sleep(millis(20)).await;
    }
    undriven.shutdown_background();
}
