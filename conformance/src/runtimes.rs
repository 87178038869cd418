//! One client on several runtimes, and futures that nobody polls: none depends on another.

use std::sync::mpsc;
use std::time::Duration;

use super::dropping::elsewhere;
use super::stage::{Stage, assert_within, done, free_by, pause, poll_once, queued, release, secs, ttl_of};
use super::time::{clock, has_passed, local_runtime, now, on_a_thread, resting};
use lockwell_core::{ErrorKind, Locks, Requirement};

/// A thread with a runtime that is driven while it runs some work, and is kept without being driven after
/// that.
pub(super) struct Undriven {
    over: mpsc::Sender<()>,
}

impl Undriven {
    /// Runs the work to its end; then the runtime is not driven any more, until this is dropped.
    pub(super) async fn after<W: Future<Output = ()>>(work: impl FnOnce() -> W + Send + 'static) -> Self {
        let (over, waits) = mpsc::channel();
        let (done, ended) = tokio::sync::oneshot::channel();
        on_a_thread(&clock(), move || {
            let runtime = local_runtime().expect("a runtime");
            runtime.block_on(work());
            assert!(done.send(()).is_ok(), "the case waits for it");
            // An error says that the case is over, too.
            let _over = resting(|| waits.recv());
            runtime.shutdown_background();
        });
        ended.await.expect("the other runtime's thread does not panic");
        Self { over }
    }

    pub(super) fn end(self) {
        assert!(self.over.send(()).is_ok(), "its thread waits for the end");
    }
}

/// Takes and releases locks of its own for this time. Any error is a failure.
async fn work(locks: Locks, stage: Stage, who: &'static str, span: Duration) -> u32 {
    let end = now().after(span);
    let mut cycles = 0;
    while !has_passed(end) {
        let guard = locks.lock(stage.name(format!("{who}/{}", cycles % 7))).wait(secs(20)).await;
        let guard = guard.unwrap_or_else(|error| panic!("{who}, cycle {cycles}: {error:#}"));
        guard.release().await.unwrap_or_else(|error| panic!("{who}, cycle {cycles}: {error:#}"));
        cycles += 1;
        // A backend in memory never waits, and would keep its thread.
        tokio::task::yield_now().await;
    }
    cycles
}

/// A client that is used on two runtimes goes on working on one when the other ends.
pub(super) async fn the_end_of_a_runtime_costs_the_others_nothing(stage: Stage) {
    // Made there, so that whatever belongs to the first runtime belongs to the one that ends.
    let (give, take) = tokio::sync::oneshot::channel();
    let there = tokio::spawn(elsewhere({
        let stage = stage.clone();
        async move {
            let locks = stage.client().await;
            // The first to use it is the one that ends.
            release(locks.lock(stage.name("first")).await.expect("a free lock")).await;
            drop(give.send(locks.clone()));
            for task in ["there/1", "there/2", "there/3"] {
                tokio::spawn(work(locks.clone(), stage.clone(), task, secs(60)));
            }
            pause(300).await;
        }
    }));
    let locks = take.await.expect("a client");
    let cycles = done("the work", secs(30), work(locks, stage.clone(), "here", secs(1))).await;
    assert!(cycles > 0);
    there.await.expect("no panic");
}

/// A runtime that is kept but not driven, with requests and tasks under way, costs the others nothing.
pub(super) async fn a_runtime_that_is_not_driven_blocks_no_other(stage: Stage) {
    let (give, take) = tokio::sync::oneshot::channel();
    let undriven = Undriven::after({
        let stage = stage.clone();
        move || async move {
            let locks = stage.client().await;
            for task in ["there/1", "there/2", "there/3"] {
                tokio::spawn(work(locks.clone(), stage.clone(), task, secs(60)));
            }
            // Somebody waits there, too: what listens for notifications was started by that runtime.
            let held = stage.client().await.lock(stage.name("held")).await.expect("a free lock");
            tokio::spawn(locks.lock(stage.name("held")).into_future());
            pause(100).await;
            drop(give.send((locks, held)));
        }
    })
    .await;
    let (locks, held) = take.await.expect("a client");
    for round in 0..20 {
        let name = stage.name(format!("here/{round}"));
        let asked = now();
        let guard = done("an answer", secs(5), locks.lock(&name).try_now()).await.expect("an answer");
        assert_within(asked, secs(2), || format!("round {round}: an answer"));
        done("the release", secs(5), release(guard.expect("a free lock"))).await;
    }
    // And one who waits here is notified here.
    let (two, name) = (stage.client().await, stage.name("mine"));
    let other = two.lock(&name).await.expect("a free lock");
    let waiting = tokio::spawn(locks.lock(&name).wait(secs(20)).into_future());
    pause(100).await;
    release(other).await;
    release(done("its turn", secs(5), waiting).await.expect("no panic").expect("its turn comes")).await;
    drop(held);
    undriven.end();
}

/// A future that was polled and is kept without being polled any more costs the others nothing.
pub(super) async fn a_future_that_is_not_polled_blocks_no_other(stage: Stage) {
    let locks = stage.client().await;
    release(locks.lock(stage.name("warm")).await.expect("a free lock")).await;
    let mut idle = Vec::new();
    for number in 0..4 {
        let mut future = Box::pin(locks.lock(stage.name(format!("idle/{number}"))).into_future());
        assert!(poll_once(future.as_mut()).await.is_none_or(|answer| answer.is_ok()));
        idle.push(future);
    }
    for round in 0..20 {
        let name = stage.name(format!("here/{round}"));
        let guard = done("an answer", secs(5), locks.lock(&name).wait(secs(4)).into_future())
            .await
            .expect("its turn comes");
        done("the release", secs(5), release(guard)).await;
    }
    drop(idle);
}

/// A guard that is dropped in a runtime which is not driven any more is released all the same, long before
/// its lease ends.
pub(super) async fn a_guard_dropped_in_a_runtime_that_is_not_driven_is_released(stage: Stage) {
    let two = stage.client().await;
    let (name, ttl) = (stage.name("dropped"), ttl_of(&two, 30_000));
    let undriven = Undriven::after({
        let (stage, name) = (stage.clone(), name.clone());
        move || async move {
            let guard = stage.client().await.lock(&name).ttl(ttl).await.expect("a free lock");
            drop(guard);
        }
    })
    .await;
    let (guard, _) = free_by(&two, &name, secs(5), "after a drop in a runtime that is not driven").await;
    undriven.end();
    release(guard).await;
}

/// A waiter whose future was dropped in a runtime which is not driven any more leaves its queue.
pub(super) async fn a_waiter_dropped_in_a_runtime_that_is_not_driven_leaves(stage: Stage) {
    let two = stage.client().await;
    let (name, ttl) = (stage.name("left"), ttl_of(&two, 30_000));
    let held = two.lock(&name).ttl(ttl).await.expect("a free lock");
    let undriven = Undriven::after({
        let (stage, name, two) = (stage.clone(), name.clone(), two.clone());
        move || async move {
            let one = stage.client().await;
            let waiting = one.lock(&name).ttl(ttl).wait(secs(60)).into_future();
            tokio::select! {
                answer = waiting => panic!("it is held: {answer:?}"),
                () = queued(&two, &name, 1, secs(20)) => (),
            }
        }
    })
    .await;
    queued(&two, &name, 0, secs(5)).await;
    undriven.end();
    release(held).await;
    let (guard, _) = free_by(&two, &name, secs(5), "after the waiter has gone").await;
    release(guard).await;
}

/// A client whose tasks queue in memory: the turn of a guard, and that of a waiter, which were dropped in a
/// runtime that is not driven any more, come to the tasks of other runtimes.
pub(super) async fn a_turn_in_a_runtime_that_is_not_driven_goes_on(stage: Stage) {
    let locks = stage.process().await;
    let name = stage.name("turn");
    let undriven = Undriven::after({
        let (name, locks) = (name.clone(), locks.clone());
        move || async move {
            let guard = locks.lock(&name).wait(secs(20)).await.expect("a free lock");
            // It has the turn to claim, and waits at the server.
            let mut next = Box::pin(locks.lock(&name).wait(secs(60)).into_future());
            assert!(poll_once(next.as_mut()).await.is_none(), "it is held");
            // And this one waits in memory.
            let mut last = Box::pin(locks.lock(&name).wait(secs(60)).into_future());
            assert!(poll_once(last.as_mut()).await.is_none(), "it is held");
            pause(50).await;
            drop((guard, next, last));
        }
    })
    .await;
    let guard = done("the turn", secs(10), locks.lock(&name).wait(secs(9)).into_future()).await;
    undriven.end();
    release(guard.expect("its turn comes")).await;
}

/// Tasks of one client queue in memory. One of them is not polled any more while it waits for its turn. The
/// next of its name gets the lock all the same, and so does this one when it is polled again.
pub(super) async fn a_waiter_that_is_not_polled_blocks_none_of_its_name(stage: Stage) {
    let locks = stage.process().await;
    // Without blocks of tokens only the place is shared, and a task that waits at the server must be polled.
    let shared = locks.capabilities().promises(Requirement::TokenBlocks);
    let locks = if shared { locks } else { locks.hand_off(1000, secs(60)) };
    let name = stage.name("kept");
    let held = locks.lock(&name).await.expect("a free lock");
    let mut kept = Box::pin(locks.lock(&name).wait(secs(120)).into_future());
    assert!(poll_once(kept.as_mut()).await.is_none(), "it is held");
    let next = tokio::spawn(locks.lock(&name).wait(secs(60)).into_future());
    pause(100).await;
    release(held).await;
    let next = done("the turn of the next", secs(10), next).await.expect("no panic");
    release(next.expect("its turn comes")).await;
    release(done("its own turn", secs(10), kept).await.expect("it is polled again")).await;
}

/// A future that waits and is not polled any more keeps its name from others for a while only.
pub(super) async fn a_waiter_that_is_not_polled_lets_others_in(stage: Stage) {
    lets_others_in(stage, "lock").await;
}

pub(super) async fn a_reader_that_is_not_polled_lets_others_in(stage: Stage) {
    lets_others_in(stage, "reader").await;
}

pub(super) async fn a_permit_that_is_not_polled_lets_others_in(stage: Stage) {
    lets_others_in(stage, "permit").await;
}

/// Its client goes on: another waiter of it needs the heartbeats.
async fn lets_others_in(stage: Stage, way: &str) {
    let holder = stage.client().await.server_order();
    let (one, two) = (stage.client().await.server_order(), stage.client().await.server_order());
    let other = holder.lock(stage.name("other")).await.expect("a free lock");
    let (name, ttl) = (stage.name(way), ttl_of(&holder, 2000));
    let ask = |locks: &Locks| match way {
        "reader" => locks.read(&name),
        "permit" => locks.permit(&name, 1),
        _ => locks.lock(&name),
    };
    let next = |locks: &Locks| if way == "permit" { ask(locks) } else { locks.lock(&name) };
    let held = next(&holder).await.expect("a free lock");
    let mut kept = Box::pin(ask(&one).ttl(ttl).wait(secs(600)).into_future());
    tokio::select! {
        answer = &mut kept => panic!("it is held: {answer:?}"),
        () = queued(&two, &name, 1, secs(20)) => (),
    }
    let busy = tokio::spawn(one.lock(stage.name("other")).wait(secs(600)).into_future());
    release(held).await;
    let guard = done(way, secs(60), next(&two).wait(secs(600)).into_future()).await.expect("its turn comes");
    release(guard).await;
    match done(way, secs(60), kept).await {
        Ok(guard) => release(guard).await,
        // It was granted the lock while nobody polled it, and the lease has ended.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}"),
    }
    busy.abort();
    release(other).await;
}
