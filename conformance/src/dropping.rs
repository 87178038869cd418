//! Guards that are dropped, on a runtime, outside of one, and with one.

use std::time::Duration;

use tokio::sync::oneshot;

use super::stage::{KEPT, Stage, free_by, holder, queued, release, secs, ttl_of};
use super::time::{block_on, clock, has_passed, now, on_a_thread, runtime_of, sleep};
use lockwell_core::LockGuard;

/// Runs a future on a runtime of its own, on a thread of its own, and shuts the runtime down when the future
/// ends.
pub(super) async fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let (give, take) = oneshot::channel();
    on_a_thread(&clock(), move || {
        let runtime = runtime_of(&clock(), "elsewhere", 2).expect("a second runtime");
        let value = block_on(&runtime, work);
        runtime.shutdown_timeout(Duration::from_secs(5));
        // The case is over if nobody listens.
        drop(give.send(value));
    });
    take.await.expect("the other runtime's thread does not panic")
}

/// A guard that is dropped gives the lock to the next.
pub(super) async fn a_dropped_guard_frees_the_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("dropped");
    let guard = one.lock(&name).await.expect("a free lock");
    drop(guard);
    let (guard, _) = free_by(&two, &name, secs(2), "after a drop").await;
    let waiter = tokio::spawn({
        let (one, name) = (one.clone(), name.clone());
        async move { free_by(&one, &name, secs(10), "after a drop, by one who waited").await.0 }
    });
    queued(&two, &name, 1, secs(5)).await;
    drop(guard);
    release(waiter.await.expect("no panic")).await;
}

/// A guard can be dropped on a thread that has no runtime.
pub(super) async fn a_guard_that_is_dropped_outside_of_a_runtime_frees_the_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("moved");
    let guard = one.lock(&name).await.expect("a free lock");
    let ttl = guard.grant().claim().ttl();
    on_a_thread(&clock(), move || drop(guard)).join().expect("no panic");
    let limit = ttl.min(secs(3));
    let (guard, _) = free_by(&two, &name, limit, "after a drop outside of the runtime").await;
    release(guard).await;
}

/// A guard that lives in a task of a runtime that is shut down.
pub(super) async fn the_end_of_a_runtime_frees_its_locks(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("ended");
    let ttl = ttl_of(&two, 3000);
    elsewhere({
        let (stage, name) = (stage.clone(), name.clone());
        async move {
            let guard = stage.client().await.lock(&name).ttl(ttl).await.expect("a free lock");
            drop(tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(guard);
            }));
        }
    })
    .await;
    let (guard, _) = free_by(&two, &name, ttl + secs(1), "after the end of the runtime").await;
    release(guard).await;
}

/// A guard that outlives its runtime is kept alive until it is dropped.
pub(super) async fn a_guard_outlives_its_runtime(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("orphan");
    let ttl = ttl_of(&two, KEPT);
    let guard: LockGuard = elsewhere({
        let (stage, name) = (stage.clone(), name.clone());
        async move { stage.client().await.lock(&name).ttl(ttl).await.expect("a free lock") }
    })
    .await;
    let token = guard.token();
    let end = now().after(ttl * 2 + ttl / 2);
    while !has_passed(end) {
        assert!(guard.is_held(), "lost without its runtime: {:?}", guard.lease_state());
        assert_eq!(holder(&two, &name).await, Some(token), "the server knows another holder");
        sleep(ttl / 10).await;
    }
    on_a_thread(&clock(), move || drop(guard)).join().expect("no panic");
    let (guard, _) = free_by(&two, &name, ttl + secs(1), "after the drop").await;
    release(guard).await;
}

/// A runtime that ends while a claim waits in the queue.
pub(super) async fn the_end_of_a_runtime_ends_its_waiting(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("waiting");
    let ttl = ttl_of(&two, 2000);
    let held = two.lock(&name).await.expect("a free lock");
    elsewhere({
        let (stage, name) = (stage.clone(), name.clone());
        async move {
            let one = stage.client().await;
            drop(tokio::spawn(one.lock(&name).ttl(ttl).wait(secs(60)).into_future()));
            queued(&one, &name, 1, secs(10)).await;
        }
    })
    .await;
    release(held).await;
    let (guard, _) = free_by(&two, &name, ttl + secs(1), "after the end of the waiter's runtime").await;
    queued(&two, &name, 0, secs(3)).await;
    release(guard).await;
}

/// A runtime that ends while the request for a free lock may be on its way.
pub(super) async fn the_end_of_a_runtime_under_an_acquire_leaves_nothing(stage: Stage) {
    let two = stage.client().await;
    let ttl = ttl_of(&two, 1000);
    for round in 0..4 {
        let name = stage.name(round);
        elsewhere({
            let (stage, name) = (stage.clone(), name.clone());
            async move {
                let one = stage.client().await;
                release(one.lock(&name).await.expect("a free lock")).await;
                drop(tokio::spawn(one.lock(&name).ttl(ttl).into_future()));
                sleep(Duration::from_micros(300 * round)).await;
            }
        })
        .await;
        let what = format!("round {round}, after the end of the runtime");
        let (guard, _) = free_by(&two, &name, ttl + secs(1), &what).await;
        release(guard).await;
    }
}
