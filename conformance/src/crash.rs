//! Processes that die or stop without a release.

use std::time::Duration;

use super::stage::{
    EXPIRY, Stage, assert_took, free_by, holder, millis, pause, queued, release, secs, ttl_of,
};
use crate::Holder;
use lockwell_core::{LockName, Moment, Requirement};

/// How long after the end of a dead holder's lease the lock may stay taken, on a busy machine.
const SLACK: Duration = EXPIRY;
const TTL: u64 = 1000;

fn start(stage: &Stage, name: &LockName, ttl: Duration) -> Holder {
    let address = stage.harness.address().expect("the harness offers its address");
    Holder::start(&address, name, ttl)
}

/// kill -9 of a holder; another claim comes later.
pub(super) async fn a_killed_holder_frees_the_lock_within_its_lease(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("killed");
    let ttl = ttl_of(&two, TTL);
    let mut process = start(&stage, &name, ttl);
    let token = process.held().await;
    assert_eq!(holder(&two, &name).await, Some(token));
    // Into the middle of its renewals.
    pause(TTL / 2).await;
    process.kill();
    let (guard, took) = free_by(&two, &name, ttl + SLACK, "after kill -9 of the holder").await;
    assert!(guard.token() > token || !two.capabilities().promises(Requirement::Fencing), "after {took:?}");
    release(guard).await;
}

/// kill -9 while another waits.
pub(super) async fn a_killed_holder_frees_the_lock_for_a_waiter(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("killed");
    let ttl = ttl_of(&two, TTL);
    let mut process = start(&stage, &name, ttl);
    let token = process.held().await;
    let waiter = tokio::spawn({
        let request = two.lock(&name).wait(secs(30));
        async move { (request.await.expect("its turn comes"), Moment::now()) }
    });
    queued(&one, &name, 1, secs(5)).await;
    pause(TTL / 2).await;
    let killed = process.kill();
    let (guard, granted) = waiter.await.expect("no panic");
    let took = granted.since(killed);
    assert_took(took, killed, ttl + SLACK, || {
        format!("the waiter's turn came after the kill, with a ttl of {ttl:?}")
    });
    assert!(guard.token() > token || !one.capabilities().promises(Requirement::Fencing));
    release(guard).await;
}

/// kill -9 of a holder that had to wait for the lock first.
pub(super) async fn a_killed_holder_that_had_waited_frees_the_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("killed");
    let ttl = ttl_of(&two, TTL);
    let held = one.lock(&name).await.expect("a free lock");
    let mut process = start(&stage, &name, ttl);
    queued(&one, &name, 1, secs(10)).await;
    // Longer than its lease will be: the lease must not count from here.
    pause(TTL * 3 / 2).await;
    release(held).await;
    let token = process.held().await;
    assert_eq!(holder(&two, &name).await, Some(token));
    pause(TTL / 2).await;
    process.kill();
    let (guard, _) = free_by(&two, &name, ttl + SLACK, "after kill -9 of a holder that had waited").await;
    release(guard).await;
}

/// kill -9 of the first in the queue: the next one does not wait for it for ever.
pub(super) async fn a_killed_waiter_is_skipped(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("passed");
    let held = one.lock(&name).await.expect("a free lock");
    let mut process = start(&stage, &name, ttl_of(&two, TTL));
    queued(&one, &name, 1, secs(10)).await;
    let waiter = tokio::spawn({
        let request = two.lock(&name).wait(secs(40));
        async move { (request.await.expect("its turn comes"), Moment::now()) }
    });
    queued(&one, &name, 2, secs(5)).await;
    process.kill();
    release(held).await;
    let released = Moment::now();
    let (guard, granted) = waiter.await.expect("no panic");
    let took = granted.since(released);
    assert_took(took, released, secs(8), || "the lock stood idle for a waiter that is dead".to_owned());
    queued(&one, &name, 0, secs(3)).await;
    release(guard).await;
}

/// SIGSTOP of the holder for longer than its lease: it is not the holder when it wakes up, and knows it at
/// once.
pub(super) async fn a_holder_that_was_stopped_knows_that_it_lost(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("stopped");
    let ttl = ttl_of(&two, TTL);
    let mut process = start(&stage, &name, ttl);
    let token = process.held().await;
    process.stop();
    let (guard, _) = free_by(&two, &name, ttl + SLACK, "after SIGSTOP of the holder").await;
    assert!(guard.token() > token || !two.capabilities().promises(Requirement::Fencing));
    tokio::time::sleep(ttl * 2).await;
    process.go_on();
    process.lost().await;
    pause(300).await;
    assert_eq!(holder(&two, &name).await, Some(guard.token()), "the old holder freed the new one's lock");
    assert!(guard.is_held());
    release(guard).await;
    let (guard, _) = free_by(&two, &name, millis(2000), "at the end").await;
    release(guard).await;
}
