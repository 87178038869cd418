//! Tasks of one client that queue in memory, and pass the lock on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::stage::{
    KEPT, Stage, assert_within, done, free_by, millis, pause, poll_once, queued, release, secs, status,
    ttl_of,
};
use super::time::now;
use crate::{ErrorKind, FencingToken, HandOver, LockConfig, LockName, Locks, Requirement};

/// Starts tasks that wait for the lock, one after the other, hold it for a moment, and say their token.
async fn crowd(
    locks: &Locks,
    name: &LockName,
    tasks: u32,
) -> Vec<tokio::task::JoinHandle<(u32, FencingToken)>> {
    let turn = Arc::new(AtomicU32::new(0));
    let mut crowd = Vec::new();
    for _ in 0..tasks {
        let turn = Arc::clone(&turn);
        let mut request = Box::pin(locks.lock(name).wait(secs(30)).into_future());
        // Polled once, it is in the queue, before the next.
        assert!(poll_once(request.as_mut()).await.is_none(), "the lock is held");
        crowd.push(tokio::spawn(async move {
            let guard = request.await.expect("its turn comes");
            let turn = turn.fetch_add(1, Ordering::SeqCst);
            let token = guard.token();
            tokio::task::yield_now().await;
            release(guard).await;
            (turn, token)
        }));
    }
    crowd
}

async fn in_order(locks: &Locks, crowd: Vec<tokio::task::JoinHandle<(u32, FencingToken)>>, own_tokens: bool) {
    let mut highest = None;
    for (place, task) in (0..).zip(crowd) {
        let (turn, token) = done("a turn", secs(30), task).await.expect("no panic");
        assert_eq!(turn, place, "the tasks of a client come in order");
        let fencing = locks.capabilities().promises(Requirement::Fencing);
        assert!(!fencing || !own_tokens || Some(token) > highest, "token {token} after {highest:?}");
        assert!(!fencing || Some(token) >= highest, "token {token} after {highest:?}");
        highest = highest.max(Some(token));
    }
}

/// One claim stands at the server for all tasks of a client, and they come in order.
pub(super) async fn one_claim_serves_all_tasks(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.coalesce();
    let name = stage.name("crowd");
    let held = two.lock(&name).await.expect("a free lock");
    let crowd = crowd(&one, &name, 12).await;
    queued(&two, &name, 1, secs(5)).await;
    assert!(
        one.lock(&name).try_now().await.expect("an answer").is_none(),
        "others of this client were first"
    );
    release(held).await;
    in_order(&one, crowd, true).await;
    let free = status(&two, &name).await;
    assert!(!free.is_held(), "after the last release: {free:?}");
    // A release needs a majority of the servers. The others may still show a place for a moment.
    queued(&two, &name, 0, secs(3)).await;
}

/// A lock that is passed on stays the same one at the server, and each task has a higher token.
pub(super) async fn a_lock_is_passed_on_within_a_client(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_over(100, secs(60));
    let name = stage.name("crowd");
    let first = one.lock(&name).await.expect("a free lock");
    let crowd = crowd(&one, &name, 12).await;
    queued(&two, &name, 0, secs(5)).await;
    let before = status(&two, &name).await;
    let view = first.handle();
    release(first).await;
    assert!(!view.is_held(), "the view was one of a hold that has ended");
    in_order(&one, crowd, one.capabilities().promises(Requirement::TokenBlocks)).await;
    let (last, _) = free_by(&two, &name, secs(2), "after the last of the crowd").await;
    let top = before.holders.first().map(|holder| holder.token);
    assert!(
        Some(last.token()) > top || !two.capabilities().promises(Requirement::Fencing),
        "{} after {top:?}",
        last.token()
    );
    release(last).await;
}

/// Another process gets its turn when the lock has been passed on as often as is allowed.
pub(super) async fn hand_overs_are_bounded(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_over(5, secs(60));
    let name = stage.name("crowd");
    let (count, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let (one, name, count, stop) = (one.clone(), name.clone(), Arc::clone(&count), Arc::clone(&stop));
        crowd.push(tokio::spawn(async move {
            while stop.load(Ordering::SeqCst) == 0 {
                let guard = one.lock(&name).wait(secs(30)).await.expect("its turn comes");
                count.fetch_add(1, Ordering::SeqCst);
                pause(2).await;
                drop(guard);
            }
        }));
    }
    while count.load(Ordering::SeqCst) < 10 {
        pause(2).await;
    }
    let other = two.lock(&name).wait(secs(20)).await.expect("its turn comes");
    let at_last = count.load(Ordering::SeqCst);
    pause(50).await;
    assert_eq!(count.load(Ordering::SeqCst), at_last, "nobody else holds it meanwhile");
    stop.store(1, Ordering::SeqCst);
    release(other).await;
    for task in crowd {
        done("the rest of the crowd", secs(20), task).await.expect("no panic");
    }
    let (guard, _) = free_by(&two, &name, secs(2), "after the crowd").await;
    release(guard).await;
}

/// Tasks whose wait ends, or that are dropped in the queue, do not delay the others, and leave nothing.
pub(super) async fn tasks_may_leave_the_local_queue(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_over(1000, secs(60));
    let name = stage.name("crowd");
    let first = one.lock(&name).await.expect("a free lock");
    let began = now();
    let error = one.lock(&name).wait(millis(100)).await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    assert_within(began, secs(2), || "a wait of 100 ms ended".to_owned());
    let dropped: Vec<_> =
        (0..5).map(|_| tokio::spawn(one.lock(&name).wait(secs(30)).into_future())).collect();
    pause(20).await;
    let last = tokio::spawn(one.lock(&name).wait(secs(30)).into_future());
    pause(20).await;
    for task in dropped {
        task.abort();
    }
    release(first).await;
    let last = done("the turn of the last", secs(5), last).await.expect("no panic").expect("its turn comes");
    // Dropped at the very moment when the lock is on its way to it.
    let next = tokio::spawn(one.lock(&name).wait(secs(30)).into_future());
    pause(20).await;
    drop(last);
    next.abort();
    drop(next.await);
    let (guard, _) = free_by(&two, &name, secs(3), "after a dropped hand-over").await;
    release(guard).await;
}

/// When the lock is lost, the next task claims it at the server, even if the guard that lost it is never
/// dropped.
pub(super) async fn a_lost_lock_is_not_passed_on(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_over(1000, secs(60));
    let name = stage.name("crowd");
    let ttl = ttl_of(&one, KEPT);
    let stuck = one.lock(&name).ttl(ttl).await.expect("a free lock");
    let waiting = tokio::spawn(one.lock(&name).ttl(ttl).wait(secs(30)).into_future());
    pause(50).await;
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let next =
        done("the next task", ttl + secs(5), waiting).await.expect("no panic").expect("its turn comes");
    assert!(!stuck.is_held() && next.is_held());
    assert!(next.token() > stuck.token() || !one.capabilities().promises(Requirement::Fencing));
    drop(stuck);
    pause(50).await;
    assert!(next.is_held(), "the one that lost it frees nothing");
    let status = status(&two, &name).await;
    assert!(status.is_held(), "{status:?}");
    release(next).await;
}

/// No configuration makes a claim reserve more tokens than the bound allows.
pub(super) async fn a_configuration_reserves_no_more_tokens_than_the_bound(stage: Stage) {
    let backend = Arc::clone(stage.client().await.backend());
    let config = LockConfig::new("unused://").hand_over(u32::MAX, secs(1));
    let one = Locks::with_config(backend, &config).expect("a keeper");
    let guard = one.lock(stage.name("block")).await.expect("a free lock");
    let reserved = guard.grant().last_token().get() - guard.token().get();
    assert!(reserved <= u64::from(HandOver::MOST), "{reserved} tokens are reserved");
    assert!(reserved > 0, "none is reserved for those who get the lock next");
    release(guard).await;
}
