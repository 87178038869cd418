use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::testing::TestServer;
use crate::{LockGuard, Locks, Loss, Operation};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn threads_take_turns() {
    let locks = Locks::in_memory();
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                for _ in 0..50 {
                    let guard = block_on(locks.lock("a").wait(LONG)).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    block_on(guard.release()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!block_on(locks.inspect("a")).unwrap().is_held());
}

#[test]
fn a_dropped_guard_is_released_and_close_waits_for_it() {
    let locks = Locks::in_memory();
    let other = Locks::new(Arc::clone(locks.backend())).unwrap();
    let guard = block_on(locks.lock("a").ttl(LONG)).unwrap();
    assert!(block_on(other.lock("a").try_now()).unwrap().is_none());
    let error = block_on(other.lock("a").wait(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(guard);
    block_on(locks.close()).unwrap();
    let guard = block_on(other.lock("a").try_now()).unwrap().expect("it was released");
    let panicked = thread::spawn({
        let other = other.clone();
        move || {
            drop(guard);
            run::<()>(other.lock("a").wait(LONG), |_| panic!("as expected"))
                .map_err(|error| error.error().duplicate())
        }
    });
    assert!(panicked.join().is_err());
    block_on(block_on(other.lock("a").wait(LONG)).unwrap().release()).unwrap();
}

#[test]
fn a_loss_is_seen_by_who_looks() {
    let server = TestServer::new();
    let locks = server.locks().unwrap();
    let guard = block_on(locks.lock("a")).unwrap();
    guard.check().unwrap();
    server.advance(Duration::from_secs(60));
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(block_on(async { Ok::<_, Error>(guard.lost().await) }).unwrap(), Loss::Expired);
    drop(guard);

    let error = run(locks.lock("b"), |_| server.advance(Duration::from_secs(60))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.into_left().is_some(), "what was finished is given back");
    assert!(run(locks.lock("c"), LockHandle::is_held).unwrap());

    server.fail(Operation::Acquire, ErrorKind::Unreachable);
    assert_eq!(block_on(locks.lock("a")).unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn all_kinds_of_requests_can_be_waited_for() {
    let locks = Locks::in_memory();
    let both = block_on(locks.lock_all(["a", "b"]).reading(["c"])).unwrap();
    assert!(both.is_held());
    assert!(block_on(locks.lock_all(["b", "d"]).try_now()).unwrap().is_none());
    block_on(both.release()).unwrap();
    // What the refused request had of them is given back in the background.
    drop(block_on(locks.lock_all(["b", "d"]).wait(LONG)).unwrap());
    let writer = block_on(locks.lock("d").wait(LONG)).unwrap();
    let reader = block_on(writer.downgrade()).unwrap();
    assert!(block_on(locks.read("d").try_now()).unwrap().is_some());
    drop(reader);
    let owner = locks.owner();
    let outer = block_on(owner.lock("e").wait(LONG)).unwrap();
    let inner = block_on(owner.lock("e").wait(LONG)).unwrap();
    assert_eq!(outer.token(), inner.token());
}

#[tokio::test]
async fn within_a_runtime_it_is_refused_in_words() {
    let locks = Locks::in_memory();
    let guard = {
        let locks = locks.clone();
        thread::spawn(move || block_on(locks.lock("a")).unwrap()).join().unwrap()
    };
    let error = block_on(locks.lock("b")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("async runtime"), "{error}");
    // The guard is released all the same.
    assert_eq!(block_on(guard.release()).unwrap_err().kind(), ErrorKind::Unsupported);
    locks.lock("a").wait(LONG).await.unwrap().release().await.unwrap();
}

#[test]
fn a_guard_may_be_a_value_of_a_thread_that_ends() {
    thread_local! {
        static HELD: std::cell::RefCell<Option<LockGuard>> = const { std::cell::RefCell::new(None) };
    }
    let locks = Locks::in_memory();
    let own = locks.clone();
    let thread = thread::spawn(move || {
        // Before the thread uses a runtime, so that it ends after the values of that.
        HELD.with(|held| assert!(held.borrow().is_none()));
        let guard = block_on(own.lock("a")).unwrap();
        HELD.with(|held| held.replace(Some(guard)));
    });
    thread.join().unwrap();
    block_on(block_on(locks.lock("a").wait(LONG / 2)).unwrap().release()).unwrap();
}
