//! Wakers of the application.

use std::pin::Pin;
use std::task::Context;

use super::*;
use crate::LockGuard;
use crate::system::waker;

/// A request for a lock.
pub(super) type Waiting = Pin<Box<dyn Future<Output = Result<LockGuard>> + Send>>;

/// Polls a request that has to wait, with a waker that does this.
pub(super) fn woken(waiting: &mut Waiting, on_wake: impl Fn() + Send + Sync + 'static) {
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker(on_wake))).is_pending());
}

/// A waker that panics, without a message of the panic.
fn panics() {
    std::panic::resume_unwind(Box::new("a waker"));
}

/// Waits for a lock, with a waker that panics.
fn asleep(locks: &Locks) -> Waiting {
    let mut waiting: Waiting = Box::pin(locks.lock("a").ttl(LEASE).into_future());
    woken(&mut waiting, panics);
    waiting
}

#[tokio::test]
async fn a_loss_that_wakes_a_panic_ends_no_renewals() {
    let locks = chosen([]).1.hand_off(9, LEASE);
    let other = locks.lock("b").ttl(Duration::from_secs(3)).await.unwrap();
    let lost = locks.lock("a").ttl(LEASE).max_hold(millis(500)).await.unwrap();
    let _asleep = asleep(&locks);
    lost.lost().await;
    let began = Moment::now();
    while locks.stats().renewals == 0 {
        assert!(Moment::now().since(began) < LEASE / 4, "no lease is renewed any more");
        tokio::time::sleep(millis(20)).await;
    }
    drop(other);
}

/// A client whose timers are those of a clock that stands still: nothing but the keeper is to wake its claims.
fn still() -> (crate::TestClock, Arc<dyn DistributedLock>, Locks) {
    let clock = crate::TestClock::new();
    let inner = MemoryLock::with_clock(clock.clock());
    let server = Arc::new(Chosen { inner, ..Chosen::default() }) as Arc<dyn DistributedLock>;
    let locks = Locks::new(Arc::clone(&server)).unwrap();
    (clock, server, locks)
}

/// The slice of the lock ends, so the keeper wakes the next task to claim it.
#[tokio::test]
async fn a_turn_that_wakes_a_panic_goes_to_the_next() {
    let (clock, _, locks) = still();
    let guard = locks.lock("a").ttl(LEASE).await.unwrap();
    let _asleep = asleep(&locks);
    clock.advance(millis(50));
    tokio::time::sleep(millis(50)).await;
    guard.release().await.unwrap();
    let next = tokio::spawn(locks.lock("a").ttl(LEASE).into_future());
    for _ in 0..300 {
        if next.is_finished() {
            return drop(next.await.unwrap().unwrap());
        }
        clock.advance(millis(1));
        tokio::time::sleep(millis(20)).await;
    }
    panic!("the turn that nobody picked up is passed on");
}

/// The keeper wakes a claim that nobody polls. Then its turn goes to the next task, and it is woken for that,
/// too.
#[tokio::test]
async fn a_claim_that_wakes_a_panic_loses_its_turn_to_the_next() {
    let (clock, server, locks) = still();
    let other = Locks::new(server).unwrap();
    let _guard = other.lock("a").ttl(LEASE).await.unwrap();
    let _asleep = asleep(&locks);
    let next = tokio::spawn(locks.lock("a").ttl(LEASE).into_future());
    for _ in 0..300 {
        if other.inspect("a").await.unwrap().waiters == 2 {
            return next.abort();
        }
        clock.advance(millis(50));
        tokio::time::sleep(millis(20)).await;
    }
    panic!("the next task was lost");
}
