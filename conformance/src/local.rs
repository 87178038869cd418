//! Tasks of one client that queue in memory, and pass the lock on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::{Either, select};

use super::network::is_honest;
use super::stage::{
    KEPT, Stage, assert_within, done, free_by, millis, pause, poll_once, queued, release, secs, status,
    ttl_of,
};
use super::time::now;
use crate::{Need, Way};
use lockwell_core::{
    ErrorKind, FencingToken, HandOff, LockConfig, LockGuard, LockName, Locks, Requirement, Result,
};

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

/// All of them get the lock, one after the other, with rising tokens. On a busy machine one that does not
/// take the lock in time is passed over, so the order of their places is not looked at.
async fn all_get_it(
    locks: &Locks,
    crowd: Vec<tokio::task::JoinHandle<(u32, FencingToken)>>,
    own_tokens: bool,
) {
    let mut turns = Vec::new();
    for task in crowd {
        turns.push(done("a turn", secs(30), task).await.expect("no panic"));
    }
    turns.sort_by_key(|(turn, _)| *turn);
    let fencing = locks.capabilities().promises(Requirement::Fencing);
    for two in turns.windows(2) {
        let (token, next) = (two[0].1, two[1].1);
        assert!(!fencing || !own_tokens || next > token, "token {next} after {token}");
        assert!(!fencing || next >= token, "token {next} after {token}");
    }
}

/// One claim stands at the server for all tasks of a client, and all of them get the lock.
pub(super) async fn one_claim_serves_all_tasks(stage: Stage) {
    let (one, two) = (stage.process().await, stage.client().await);
    let name = stage.name("crowd");
    let held = two.lock(&name).await.expect("a free lock");
    let crowd = crowd(&one, &name, 12).await;
    queued(&two, &name, 1, secs(5)).await;
    assert!(one.lock(&name).try_now().await.expect("an answer").is_none(), "it is held");
    release(held).await;
    all_get_it(&one, crowd, true).await;
    let (guard, _) = free_by(&two, &name, secs(3), "after the last release").await;
    release(guard).await;
    // A release needs a majority of the servers. The others may still show a place for a moment.
    queued(&two, &name, 0, secs(3)).await;
}

/// How often an order is looked at. On a busy machine a task that does not take the lock in time is passed
/// over, so one look at it proves nothing.
const LOOKS: u32 = 4;

/// Both get the lock. Returns whether they get it in this order.
async fn in_order(
    next: tokio::task::JoinHandle<Result<LockGuard>>,
    other: tokio::task::JoinHandle<Result<LockGuard>>,
) -> bool {
    let (first, second, is_in_order) = match done("the next task", secs(10), select(next, other)).await {
        Either::Left((first, second)) => (first, second, true),
        Either::Right((first, second)) => (first, second, false),
    };
    let guard = first.expect("no panic").expect("its turn comes");
    assert!(guard.is_held() && !second.is_finished(), "two hold it");
    release(guard).await;
    release(done("the other", secs(10), second).await.expect("no panic").expect("its turn comes")).await;
    is_in_order
}

/// The place in the queue of the server outlives the tasks that have waited first: one whose future is
/// dropped, and one whose wait ends. The next task of the client has it.
pub(super) async fn a_place_outlives_its_task(stage: Stage) {
    let (one, two) = (stage.process().await, stage.client().await);
    for look in 0..LOOKS {
        if is_inherited(&one, &two, &stage.name(format!("place {look}"))).await {
            return;
        }
    }
    panic!("another client, which came later, gets the lock before the next task");
}

async fn is_inherited(one: &Locks, two: &Locks, name: &LockName) -> bool {
    let held = two.lock(name).await.expect("a free lock");
    let mut dropped = Box::pin(one.lock(name).wait(secs(60)).into_future());
    assert!(poll_once(dropped.as_mut()).await.is_none(), "it is held");
    let dropped = tokio::spawn(dropped);
    queued(two, name, 1, secs(5)).await;
    let hasty = tokio::spawn(one.lock(name).wait(secs(2)).into_future());
    pause(20).await;
    let last = tokio::spawn(one.lock(name).wait(secs(60)).into_future());
    pause(20).await;
    let other = tokio::spawn(two.lock(name).wait(secs(60)).into_future());
    queued(two, name, 2, secs(5)).await;
    dropped.abort();
    let error = done("the end of a wait", secs(10), hasty).await.expect("no panic").expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    queued(two, name, 2, secs(5)).await;
    assert!(!other.is_finished() && !last.is_finished());
    release(held).await;
    let is_inherited = in_order(last, other).await;
    let (guard, _) = free_by(two, name, secs(3), "after both").await;
    release(guard).await;
    queued(two, name, 0, secs(3)).await;
    is_inherited
}

/// When nobody is left who waits behind a claim without a caller, it leaves the queue of the server.
pub(super) async fn a_place_that_nobody_wants_is_left(stage: Stage) {
    let (one, two) = (stage.process().await, stage.client().await);
    let name = stage.name("place");
    let held = two.lock(&name).await.expect("a free lock");
    let first = tokio::spawn(one.lock(&name).wait(secs(60)).into_future());
    queued(&two, &name, 1, secs(5)).await;
    let second = tokio::spawn(one.lock(&name).wait(secs(60)).into_future());
    pause(20).await;
    first.abort();
    pause(50).await;
    queued(&two, &name, 1, secs(5)).await;
    second.abort();
    queued(&two, &name, 0, secs(5)).await;
    release(held).await;
    let (guard, _) = free_by(&two, &name, secs(3), "after both were dropped").await;
    release(guard).await;
}

/// A holder that keeps the lock for long does not keep the next task of its process out of the queue of the
/// server.
pub(super) async fn a_long_hold_lets_the_next_task_queue(stage: Stage) {
    let (one, two) = (stage.process().await, stage.client().await);
    for look in 0..LOOKS {
        let name = stage.name(format!("long {look}"));
        let held = one.lock(&name).await.expect("a free lock");
        let next = tokio::spawn(one.lock(&name).wait(secs(60)).into_future());
        queued(&two, &name, 1, secs(5)).await;
        let other = tokio::spawn(two.lock(&name).wait(secs(60)).into_future());
        queued(&two, &name, 2, secs(5)).await;
        release(held).await;
        if in_order(next, other).await {
            return;
        }
    }
    panic!("another client, which came later, gets the lock before the next task");
}

/// Tasks that wait behind another one learn in their own time that the server is away.
pub(super) async fn tasks_of_a_client_learn_that_the_server_is_away(stage: Stage) {
    let link = stage.link().await;
    let one = link.client().await.expect("a client behind the network");
    let name = stage.name("away");
    release(one.lock(&name).await.expect("a free lock")).await;
    link.blackhole(Way::Both);
    let began = now();
    let waits = [secs(3), secs(2), secs(4)];
    let tasks: Vec<_> =
        waits.iter().map(|wait| tokio::spawn(one.lock(&name).wait(*wait).into_future())).collect();
    // Tasks of an owner wait for the one of them that takes the lock.
    let (owner, owned) = (one.owner(), stage.name("owned"));
    let of_owner: Vec<_> =
        waits.iter().map(|wait| tokio::spawn(owner.lock(&owned).wait(*wait).into_future())).collect();
    for (wait, (task, of_owner)) in waits.into_iter().zip(tasks.into_iter().zip(of_owner)) {
        let error =
            done("the end of a wait", secs(10), task).await.expect("no panic").expect_err("no answer");
        let of_owner =
            done("the end of a wait", secs(10), of_owner).await.expect("no panic").expect_err("no answer");
        for error in [error, of_owner] {
            assert!(is_honest(&error), "{error:#}");
            assert_within(began, waits[2].max(wait) + secs(1), || {
                format!("a wait of {wait:?} ended: {error:#}")
            });
        }
    }
    link.heal();
    let (guard, _) = free_by(&one, &name, secs(15), "after the server has come back").await;
    release(guard).await;
}

/// A lock that is passed on stays the same one at the server, and each task has a higher token.
pub(super) async fn a_lock_is_passed_on_within_a_client(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_off(100, secs(60));
    let name = stage.name("crowd");
    let first = one.lock(&name).await.expect("a free lock");
    let crowd = crowd(&one, &name, 12).await;
    queued(&two, &name, 0, secs(5)).await;
    let before = status(&two, &name).await;
    let view = first.handle();
    release(first).await;
    assert!(!view.is_held(), "the view was one of a hold that has ended");
    all_get_it(&one, crowd, one.capabilities().promises(Requirement::TokenBlocks)).await;
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
    let (one, two) = (stage.client().await.hand_off(5, secs(60)), stage.client().await);
    bounded(&stage, one.clone(), &two).await;
    counted(&stage, &one, &two, 0, 5).await;
}

/// By default it gets its turn after a slice of time.
pub(super) async fn another_process_gets_its_turn(stage: Stage) {
    let (one, two) = (stage.process().await, stage.client().await);
    bounded(&stage, one.clone(), &two).await;
    // A hold that is longer than a slice lets one more task take its place in the queue.
    counted(&stage, &one, &two, 1, 1).await;
}

async fn bounded(stage: &Stage, one: Locks, two: &Locks) {
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
    let (guard, _) = free_by(two, &name, secs(2), "after the crowd").await;
    release(guard).await;
}

/// While a task of the first client holds the lock, its other tasks have so many places in the queue of the
/// server. At most so many of them get the lock before the second client, which queues then.
async fn counted(stage: &Stage, one: &Locks, two: &Locks, places: usize, most: u32) {
    if !stage.harness.offers().contains(&Need::Counted) {
        return;
    }
    let name = stage.name("counted");
    let held = one.lock(&name).await.expect("a free lock");
    let count = Arc::new(AtomicU32::new(0));
    let mut crowd = Vec::new();
    for _ in 0..10 {
        let (mut request, count) =
            (Box::pin(one.lock(&name).wait(secs(30)).into_future()), Arc::clone(&count));
        assert!(poll_once(request.as_mut()).await.is_none(), "the lock is held");
        crowd.push(tokio::spawn(async move {
            let guard = request.await.expect("its turn comes");
            count.fetch_add(1, Ordering::SeqCst);
            pause(5).await;
            release(guard).await;
        }));
    }
    queued(two, &name, places, secs(5)).await;
    let other = tokio::spawn(two.lock(&name).wait(secs(20)).into_future());
    queued(two, &name, places + 1, secs(5)).await;
    release(held).await;
    let other = done("its turn", secs(25), other).await.expect("no panic").expect("its turn comes");
    let before = count.load(Ordering::SeqCst);
    let is_in_order = two.capabilities().promises(Requirement::Fifo);
    assert!(before <= most || !is_in_order, "{before} holds before that of a client that was in the queue");
    release(other).await;
    for task in crowd {
        done("the rest of the crowd", secs(20), task).await.expect("no panic");
    }
}

/// Tasks whose wait ends, or that are dropped in the queue, do not delay the others, and leave nothing.
pub(super) async fn tasks_may_leave_the_local_queue(stage: Stage) {
    let [one, two] = stage.clients().await;
    let one = one.hand_off(1000, secs(60));
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
    let one = one.hand_off(1000, secs(60));
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
    let config = LockConfig::new("unused://").hand_off(u32::MAX, secs(1));
    let one = Locks::with_config(backend, &config).expect("a keeper");
    let guard = one.lock(stage.name("block")).await.expect("a free lock");
    let reserved = guard.grant().last_token().get() - guard.token().get();
    assert!(reserved <= u64::from(HandOff::MOST), "{reserved} tokens are reserved");
    assert!(reserved > 0, "none is reserved for those who get the lock next");
    release(guard).await;
}
