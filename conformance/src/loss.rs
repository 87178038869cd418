//! A holder that loses its lock learns it in time.

use super::stage::{
    KEPT, Stage, assert_within, done, free_by, holder, is_refused, millis, pause, release, secs, ttl_of,
};
use super::time::now;
use crate::Way;
use lockwell_core::{
    ErrorKind, LeaseState, LockGuard, LockHandle, LockName, Locks, Loss, Moment, Requirement,
};

/// Takes the lock from its holder, as an operator does, and gives it to another.
async fn steal(thief: &Locks, name: &LockName) -> LockGuard {
    assert_eq!(thief.force_release(name).await.expect("an answer"), 1, "one holder was freed");
    thief.lock(name).try_now().await.expect("an answer").expect("a freed lock is free")
}

/// The old holder learns of its loss, and does no harm to the new one.
pub(super) async fn a_stolen_lock_is_reported_lost(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    for drops in [false, true] {
        let name = stage.name(drops);
        let ttl = ttl_of(&one, 8000);
        let old = one.lock(&name).ttl(ttl).await.expect("a free lock");
        let new = steal(&two, &name).await;
        let began = now();
        let loss = done("the news of the loss", ttl, old.lost()).await;
        assert_eq!(loss, Loss::Taken, "after {:?}", now().since(began));
        assert!(!old.is_held());
        assert_eq!(old.lease_state(), LeaseState::Lost(Loss::Taken));
        assert!(old.time_left().is_zero());
        if drops {
            drop(old);
            pause(100).await;
        } else {
            let error = old.release().await.expect_err("the lock was lost");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
        }
        assert_eq!(holder(&three, &name).await, Some(new.token()), "the old holder freed the new one's lock");
        is_refused(&three, &name, &new, "after the loss").await;
        assert!(new.is_held());
        release(new).await;
    }
}

/// A holder that releases before it knows of its loss learns it from the release.
pub(super) async fn a_release_after_a_theft_says_lost(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("stolen");
    let old = one.lock(&name).ttl(ttl_of(&one, 30_000)).await.expect("a free lock");
    let new = steal(&two, &name).await;
    let error = old.release().await.expect_err("the lock was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert!(!error.is_retryable(), "{error:#}");
    assert_eq!(holder(&two, &name).await, Some(new.token()));
    release(new).await;
}

/// What a holder saw when its server fell silent.
struct Seen {
    suspect: bool,
    /// When the guard reported the loss.
    lost: Moment,
}

/// Watches a lock until it is lost, which must happen by its deadline, and not much earlier.
async fn watch(held: &LockHandle, silent: Moment) -> Seen {
    let ttl = held.claim().ttl();
    let mut suspect = false;
    let loss = {
        let mut lost = std::pin::pin!(held.lost());
        loop {
            tokio::select! {
                biased;
                loss = &mut lost => break loss,
                () = pause(5) => suspect |= held.lease_state() == LeaseState::Suspect,
            }
            let (silent_for, left) = (now().since(silent), held.time_left());
            assert_within(silent, ttl + millis(150), || {
                format!("no loss after {silent_for:?}, with a ttl of {ttl:?}; left {left:?}")
            });
        }
    };
    let lost = now();
    assert_eq!(loss, Loss::Expired);
    assert!(!held.is_held(), "the loss was reported, but is_held");
    assert_eq!(held.lease_state(), LeaseState::Lost(Loss::Expired));
    let after = lost.since(silent);
    // The last renewal before was sent a third of the ttl ago at most, and some time for its answer.
    assert!(after >= ttl * 3 / 10, "lost {after:?} after the last heartbeat, with a ttl of {ttl:?}");
    Seen { suspect, lost }
}

/// Somebody who waits for the lock. The result says when it was granted.
fn waiter(locks: &Locks, name: &LockName) -> tokio::task::JoinHandle<(LockGuard, Moment)> {
    let request = locks.lock(name).wait(secs(40));
    tokio::spawn(async move {
        let guard = request.await.expect("its turn comes");
        (guard, now())
    })
}

/// The server is stopped: no answer comes, but the deadline does.
pub(super) async fn a_stopped_server_does_not_delay_the_loss(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("stopped");
    let ttl = ttl_of(&one, KEPT);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    pause(300).await;
    let silent = now();
    stage.server().pause().await;
    let seen = watch(&guard.handle(), silent).await;
    stage.server().resume().await;
    assert!(seen.suspect, "not suspect before the loss");
    let (next, took) = free_by(&two, &name, ttl + secs(5), "after the server went on").await;
    assert!(!guard.is_held(), "a lost lock came back after {took:?}");
    assert!(next.token() > guard.token() || !one.capabilities().promises(Requirement::Fencing));
    let error = guard.release().await.expect_err("the lock was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert!(next.is_held());
    release(next).await;
}

/// The holder is cut off in each of these ways; the next holder is not.
async fn cut_off(stage: Stage, fault: fn(&dyn crate::Link)) {
    let link = stage.link().await;
    let two = stage.client().await;
    let one = link.client().await.expect("a client behind the network");
    let name = stage.name("island");
    let ttl = ttl_of(&one, KEPT);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    let waiting = waiter(&two, &name);
    let renewed = async {
        while one.stats().renewals == 0 {
            pause(5).await;
        }
    };
    done("the first renewal", ttl, renewed).await;
    assert!(guard.is_held(), "lost on a network that works: {:?}", guard.lease_state());
    let silent = now();
    fault(&*link);
    let seen = watch(&guard.handle(), silent).await;
    assert!(seen.suspect, "not suspect before the loss");
    let (next, granted) = done("the next holder's turn", ttl * 2 + secs(3), waiting).await.expect("no panic");
    let early = seen.lost.since(granted);
    assert!(early.is_zero(), "granted again {early:?} before the guard was lost");
    link.heal();
    pause(300).await;
    assert!(!guard.is_held(), "a lost lock came back");
    drop(guard);
    pause(300).await;
    assert!(next.is_held());
    assert_eq!(holder(&two, &name).await, Some(next.token()), "the old holder freed the new one's lock");
    release(next).await;
}

/// Neither requests nor replies arrive.
pub(super) async fn a_holder_in_a_black_hole_loses_its_lock_in_time(stage: Stage) {
    cut_off(stage, |link| link.blackhole(Way::Both)).await;
}

/// Requests arrive and replies do not.
pub(super) async fn a_holder_without_replies_loses_its_lock_in_time(stage: Stage) {
    cut_off(stage, |link| link.blackhole(Way::ToClient)).await;
}

/// Replies arrive and requests do not.
pub(super) async fn a_holder_whose_requests_are_lost_loses_its_lock_in_time(stage: Stage) {
    cut_off(stage, |link| link.blackhole(Way::ToServer)).await;
}

/// Connections are reset.
pub(super) async fn a_holder_that_is_cut_off_loses_its_lock_in_time(stage: Stage) {
    cut_off(stage, |link| link.cut()).await;
}

/// The deadline has passed, and the keeper may not have noticed it. The server still has the claim, and finds
/// it when it is released. That is a loss all the same, and the lock is free.
pub(super) async fn a_release_after_the_deadline_says_lost(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("late");
    for round in 0..10 {
        let guard = one.lock(&name).max_hold(millis(60)).wait(secs(20)).await.expect("a free lock");
        while guard.is_held() {
            // The keeper is not given a chance to be first.
            std::thread::yield_now();
        }
        let error = guard.release().await.expect_err("the deadline had passed");
        assert_eq!(error.kind(), ErrorKind::Lost, "round {round}: {error:#}");
        let (next, _) = free_by(&two, &name, secs(3), "after a release that came too late").await;
        release(next).await;
    }
}

/// A task that waits for the end of a hold ends with the hold, whatever the reason of the end is.
pub(super) async fn a_task_that_watches_a_lock_ends_with_it(stage: Stage) {
    let one = stage.client().await;
    let mut watchers = Vec::new();
    for round in 0..20 {
        let guard = one.lock(stage.name(round)).wait(secs(20)).await.expect("a free lock");
        let held = guard.handle();
        watchers.push(tokio::spawn(async move { held.ended().await }));
        match round % 2 {
            0 => release(guard).await,
            _ => drop(guard),
        }
    }
    for watcher in watchers {
        assert_eq!(done("a watcher", secs(5), watcher).await.expect("no panic"), None, "it was released");
    }
    let guard = one.lock(stage.name("lost")).max_hold(millis(50)).await.expect("a free lock");
    let loss = done("the loss", secs(5), guard.handle().ended()).await;
    assert_eq!(loss, Some(Loss::HeldTooLong));
}

/// Every lock that was lost is counted, once, however soon its guard is dropped.
pub(super) async fn every_loss_is_counted(stage: Stage) {
    const LOCKS: usize = 10;
    let one = stage.client().await;
    let longest = millis(200);
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards
            .push(one.lock(stage.name(number)).max_hold(longest).wait(secs(20)).await.expect("a free lock"));
    }
    while guards.iter().any(LockGuard::is_held) {
        // The keeper is not given a chance to be first.
        std::thread::yield_now();
    }
    drop(guards);
    let lost = async {
        while one.stats().lost != LOCKS as u64 {
            pause(5).await;
        }
    };
    done("the count", secs(5), lost).await;
    pause(300).await;
    assert_eq!(one.stats().lost, LOCKS as u64, "{:?}", one.stats());
}
