//! The server goes away and comes back.

use super::stage::{
    Stage, assert_within, done, free_by, holder, is_refused, pause, queued, release, secs, ttl_of,
};
use super::time::now;
use lockwell_core::{LockGuard, LockName, Locks, Requirement};

/// Takes the lock as an application would that tries again when a retry can help.
async fn insist(locks: &Locks, name: &LockName) -> LockGuard {
    let began = now();
    loop {
        match locks.lock(name).wait(secs(5)).await {
            Ok(guard) => return guard,
            Err(error) => {
                assert!(error.is_retryable(), "no retry can help, it says: {error:#}");
                assert_within(began, secs(20), || format!("no lock, however often it is tried: {error:#}"));
                pause(100).await;
            }
        }
    }
}

/// A client need not be made anew after a restart of the server.
pub(super) async fn a_client_comes_back_after_a_restart(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("back");
    release(one.lock(&name).await.expect("a free lock")).await;
    stage.server().restart().await;
    let guard = insist(&one, &name).await;
    let other = two.lock(stage.name("other"));
    release(done("another lock", secs(20), other.into_future()).await.expect("a free lock")).await;
    release(guard).await;
    let (guard, _) = free_by(&two, &name, secs(5), "after the restart").await;
    release(guard).await;
}

/// Tokens go on rising.
pub(super) async fn tokens_rise_over_a_restart(stage: Stage) {
    let one = stage.client().await;
    let name = stage.name("tokens");
    let mut last = None;
    for restart in [false, true, true] {
        if restart {
            stage.server().restart().await;
        }
        for _ in 0..3 {
            let guard = insist(&one, &name).await;
            assert!(Some(guard.token()) > last, "token {} after {last:?}", guard.token());
            last = Some(guard.token());
            release(guard).await;
        }
    }
}

/// A lock with enough time left is still held after the restart, and is renewed.
pub(super) async fn a_lock_survives_a_restart(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("survivor");
    let ttl = ttl_of(&one, 30_000);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    // A client of several servers learns from each of them for how long it will keep its lease.
    pause(2000).await;
    stage.server().restart().await;
    assert!(guard.is_held(), "{:?}", guard.lease_state());
    let before = one.stats().renewals;
    let began = now();
    while one.stats().renewals == before {
        assert_within(began, ttl, || format!("not renewed after the restart: {:?}", one.stats()));
        pause(50).await;
    }
    assert_eq!(holder(&two, &name).await, Some(guard.token()), "the server forgot its holder");
    is_refused(&two, &name, &guard, "after the restart").await;
    release(guard).await;
}

/// A claim that waited during the restart gets the lock.
pub(super) async fn a_waiter_outlives_a_restart(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("waiter");
    let held = one.lock(&name).ttl(ttl_of(&one, 30_000)).await.expect("a free lock");
    let token = held.token();
    let waiter = tokio::spawn(two.lock(&name).wait(secs(60)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    pause(2000).await;
    stage.server().restart().await;
    pause(500).await;
    if let Err(error) = held.release().await {
        assert!(error.is_retryable(), "{error:#}");
    }
    let next = done("the waiter's turn", secs(65), waiter).await.expect("no panic").expect("its turn comes");
    assert!(next.token() > token || !one.capabilities().promises(Requirement::Fencing));
    release(next).await;
    release(insist(&three, &name).await).await;
}

/// A wait covers a server that is away for longer than a request may take: for those who wait already, and for
/// one that comes meanwhile. Their order may change, since a place without heartbeats does not count any more.
pub(super) async fn a_wait_covers_an_outage(stage: Stage) {
    let [one, two, three, four] = stage.clients().await;
    let (name, free) = (stage.name("held"), stage.name("free"));
    let held = one.lock(&name).ttl(ttl_of(&one, 30_000)).await.expect("a free lock");
    release(four.lock(&free).await.expect("a free lock")).await;
    let mut waiters = Vec::new();
    for (number, locks) in [&two, &three].into_iter().enumerate() {
        let waiting = locks.lock(&name).wait(secs(75)).into_future();
        waiters.push(tokio::spawn(async { release(waiting.await.expect("the wait covers it")).await }));
        queued(&one, &name, number + 1, secs(5)).await;
    }
    stage.server().pause().await;
    let comer = tokio::spawn(four.lock(&free).wait(secs(75)).into_future());
    pause(7500).await;
    stage.server().resume().await;
    let guard = done("the free lock", secs(60), comer).await.expect("no panic").expect("the wait covers it");
    release(guard).await;
    // A waiter that nobody has heard since may be passed over.
    queued(&one, &name, 2, secs(30)).await;
    release(held).await;
    for waiter in waiters {
        done("a waiter's turn", secs(60), waiter).await.expect("no panic");
    }
}

/// A short stop of the server, shorter than the lease, costs nobody the lock.
pub(super) async fn a_short_stop_of_the_server_costs_nothing(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("short");
    let ttl = ttl_of(&one, 10_000);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    let waiter = tokio::spawn(two.lock(&name).wait(secs(30)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    // A client may need a moment to learn from the servers for how long its leases outlive such a stop.
    pause(1500).await;
    stage.server().pause().await;
    pause(2000).await;
    stage.server().resume().await;
    let began = now();
    while now().since(began) < ttl {
        assert!(guard.is_held(), "lost after {:?}: {:?}", now().since(began), guard.lease_state());
        pause(50).await;
    }
    let token = guard.token();
    release(guard).await;
    let next = done("the waiter's turn", secs(10), waiter).await.expect("no panic").expect("its turn comes");
    assert!(next.token() > token || !one.capabilities().promises(Requirement::Fencing));
    release(next).await;
}
