//! `run`: work that is done under the lock, and is stopped when the lock is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::stage::{Stage, done, free_by, holder, millis, pause, queued, release, secs, ttl_of};
use super::time::{block, clock};
use lockwell_core::ErrorKind;

/// The value of the work comes back, and the lock is free afterwards.
pub(super) async fn run_returns_the_value_and_releases(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("run");
    let work = one.lock(&name).run(async |held| {
        assert!(held.is_held());
        assert_eq!(holder(&two, &name).await, Some(held.token()), "the work runs under the lock");
        pause(20).await;
        42
    });
    assert_eq!(work.await.expect("the work is done"), 42);
    assert_eq!(holder(&two, &name).await, None, "run has released the lock");
    let guard = two.lock(&name).try_now().await.expect("an answer").expect("run has released the lock");
    release(guard).await;
}

/// Sets a flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Work that goes on when the lock is lost is cancelled, and its caller gets an error.
pub(super) async fn run_stops_the_work_when_the_lock_is_lost(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("run");
    let ttl = ttl_of(&one, 3000);
    let (stopped, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let working = tokio::spawn({
        let (flag, finished) = (Flag(Arc::clone(&stopped)), Arc::clone(&finished));
        one.lock(&name).ttl(ttl).run(|_| async move {
            let _flag = flag;
            pause(30_000).await;
            finished.store(true, Ordering::SeqCst);
        })
    });
    while holder(&two, &name).await.is_none() {
        pause(5).await;
    }
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let thief = two.lock(&name).try_now().await.expect("an answer").expect("a freed lock is free");
    let error = done("the end of the work", ttl, working).await.expect("no panic").expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert!(stopped.load(Ordering::SeqCst), "the work was not dropped");
    assert!(!finished.load(Ordering::SeqCst), "the work went on without the lock");
    pause(100).await;
    assert_eq!(holder(&two, &name).await, Some(thief.token()), "run freed another's lock");
    release(thief).await;
}

/// Work that is dropped from outside gives the lock back.
pub(super) async fn run_can_be_dropped(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("run");
    let working = tokio::spawn(one.lock(&name).run(|_| pause(30_000)));
    while holder(&two, &name).await.is_none() {
        pause(5).await;
    }
    working.abort();
    let (guard, _) = free_by(&two, &name, secs(2), "after the work was dropped").await;
    queued(&two, &name, 0, secs(1)).await;
    release(guard).await;
}

/// Work that has come to its end when the loss is noticed is not thrown away.
pub(super) async fn run_gives_back_what_was_finished_too_late(stage: Stage) {
    let one = stage.client().await;
    let work = one.lock(stage.name("late")).max_hold(millis(50)).run(async |held| {
        // Work that does not await cannot be stopped.
        while held.is_held() {
            block(&clock(), millis(5));
        }
        42
    });
    let error = work.await.expect_err("it was lost before the work had ended");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert_eq!(error.into_left(), Some(42));
}

/// Several locks are held while work is done, and none afterwards. The loss of one of them stops it.
pub(super) async fn run_holds_several_locks(stage: Stage) {
    let [one, two] = stage.clients().await;
    let (a, b) = (stage.name("a"), stage.name("b"));
    let ttl = ttl_of(&one, 3000);
    let work = one.lock_all([&a, &b]).run(async |held| {
        let [first, second] = &held[..] else { unreachable!("two of them") };
        assert_eq!(holder(&two, &a).await, Some(first.token()));
        assert_eq!(holder(&two, &b).await, Some(second.token()));
        42
    });
    assert_eq!(work.await.expect("the work is done"), 42);
    assert!(two.lock_all([&a, &b]).try_now().await.expect("an answer").is_some(), "run has released them");

    free_by(&two, &b, secs(2), "after a drop").await.0.release().await.expect("it is held");
    let working = tokio::spawn(one.lock_all([&a, &b]).ttl(ttl).wait(secs(5)).run(|_| pause(30_000)));
    while holder(&two, &b).await.is_none() {
        pause(5).await;
    }
    assert_eq!(two.force_release(&b).await.expect("an answer"), 1);
    let error = done("the end of the work", ttl, working).await.expect("no panic").expect_err("one was lost");
    assert_eq!((error.kind(), error.error().lock()), (ErrorKind::Lost, Some(&b)), "{error:#}");
    release(free_by(&two, &a, secs(2), "after the loss of the other").await.0).await;
}

/// Work of an owner is done under the lock that the owner has, which is free when the last guard has gone.
pub(super) async fn run_of_an_owner_shares_its_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let (name, owner) = (stage.name("run"), one.owner());
    let work = owner.lock(&name).run(async |outer| {
        let inner = owner.lock(&name).run(async |inner| inner.token()).await.expect("it has the lock");
        assert_eq!((inner, holder(&two, &name).await), (outer.token(), Some(outer.token())));
        42
    });
    assert_eq!(work.await.expect("the work is done"), 42);
    assert_eq!(holder(&two, &name).await, None, "the last run has released the lock");
}
