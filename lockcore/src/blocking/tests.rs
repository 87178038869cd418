use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::testing::TestServer;
use crate::{ErrorKind, LockHandle, Loss, Mode, Operation};

const LONG: Duration = Duration::from_secs(30);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn threads_take_turns() {
    let locks = Locks::in_memory().unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                for _ in 0..50 {
                    let guard = locks.lock("a").wait(LONG).acquire().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    thread::yield_now();
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    guard.release().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!locks.inspect("a").unwrap().is_held());
}

#[test]
fn a_dropped_guard_is_released_and_close_waits_for_it() {
    let locks = Locks::in_memory().unwrap();
    let other = crate::Locks::new(Arc::clone(locks.as_async().backend())).unwrap();
    let other = Locks::new(other).unwrap();
    let guard = locks.lock("a").ttl(LONG).acquire().unwrap();
    assert!(other.lock("a").try_now().unwrap().is_none());
    let error = other.lock("a").wait(ms(20)).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(guard);
    locks.close().unwrap();
    let guard = other.lock("a").try_now().unwrap().expect("it was released");
    assert_eq!((guard.mode(), guard.is_held()), (Mode::Exclusive, true));
    let panicked = thread::spawn({
        let other = other.clone();
        move || {
            drop(guard);
            other
                .lock("a")
                .wait(LONG)
                .run::<()>(|_| panic!("as expected"))
                .map_err(|error| error.error().duplicate())
        }
    });
    assert!(panicked.join().is_err());
    other.lock("a").wait(LONG).acquire().unwrap().release().unwrap();
}

#[test]
fn a_loss_is_seen_by_who_looks() {
    let server = TestServer::new();
    let locks = Locks::new(server.locks().unwrap()).unwrap();
    let guard = locks.lock("a").acquire().unwrap();
    guard.check().unwrap();
    assert_eq!(guard.lost_within(ms(5)).unwrap(), None);
    server.advance(Duration::from_mins(1));
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.lost_within(LONG).unwrap(), Some(Loss::Expired));
    drop(guard);

    let error = locks.lock("b").run(|_| server.advance(Duration::from_mins(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.into_left().is_some(), "what was finished is given back");
    assert!(locks.lock("c").run(LockHandle::is_held).unwrap());

    server.fail(Operation::Acquire, ErrorKind::Unreachable);
    assert_eq!(locks.lock("a").acquire().unwrap_err().kind(), ErrorKind::Unreachable);
}

#[test]
fn several_are_taken_together() {
    let locks = Locks::in_memory().unwrap();
    let both = locks.lock_all(["a", "b"]).reading(["c"]).acquire().unwrap();
    assert!(both.is_held() && both.handles().len() == 3);
    assert!(locks.lock_all(["b", "d"]).try_now().unwrap().is_none());
    assert!(locks.read("c").try_now().unwrap().is_some());
    both.release().unwrap();
    // What the refused request had of them is given back in the background.
    drop(locks.lock_all(["b", "d"]).wait(LONG).acquire().unwrap());
    locks.lock("d").wait(LONG).acquire().unwrap().release().unwrap();
}

#[tokio::test]
async fn within_a_runtime_it_is_refused_in_words() {
    let locks = Locks::in_memory().unwrap();
    let guard = {
        let locks = locks.clone();
        thread::spawn(move || locks.lock("a").acquire().unwrap()).join().unwrap()
    };
    let error = locks.lock("b").acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("async runtime"), "{error}");
    let connecting = Locks::connect_by(async { Ok(crate::Locks::in_memory()) });
    assert_eq!(connecting.unwrap_err().kind(), ErrorKind::Unsupported);
    // The guard is released all the same.
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::Unsupported);
    locks.as_async().lock("a").wait(LONG).await.unwrap().release().await.unwrap();
}

#[test]
fn a_guard_may_be_a_value_of_a_thread_that_ends() {
    thread_local! {
        static HELD: std::cell::RefCell<Option<LockGuard>> = const { std::cell::RefCell::new(None) };
    }
    let locks = Locks::in_memory().unwrap();
    let own = locks.clone();
    let thread = thread::spawn(move || {
        // Before the thread uses a runtime, so that it ends after the values of that.
        HELD.with(|held| assert!(held.borrow().is_none()));
        let guard = own.lock("a").acquire().unwrap();
        HELD.with(|held| held.replace(Some(guard)));
    });
    thread.join().unwrap();
    locks.lock("a").wait(LONG / 2).acquire().unwrap().release().unwrap();
}
