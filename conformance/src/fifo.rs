//! Waiters are served in the order in which they came.

use std::sync::{Arc, Mutex};

use super::stage::{Stage, done, millis, pause, queued, release, secs};
use super::time::sleep;
use lockwell_core::backend::lock;

/// Each waiter is seen in the queue before the next one comes, so their order is known.
pub(super) async fn waiters_are_served_in_order_across_clients(stage: Stage) {
    const WAITERS: usize = 10;
    let [operator, one, two] = stage.clients().await;
    let name = stage.name("queue");
    let held = operator.lock(&name).await.expect("a free lock");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for place in 0..WAITERS {
        let locks = if place % 2 == 0 { one.clone() } else { two.clone() };
        let (name, served) = (name.clone(), Arc::clone(&served));
        let queue = name.clone();
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock(&name).wait(secs(60)).await.expect("its turn comes");
            lock(&served).push(place);
            pause(3).await;
            release(guard).await;
        }));
        queued(&operator, &queue, place + 1, secs(10)).await;
    }
    release(held).await;
    for task in tasks {
        done("all are served", secs(30), task).await.expect("no task fails");
    }
    let served = lock(&served).clone();
    assert!(served.is_sorted(), "served in the order {served:?}");
}

/// A claim that comes just when the lock changes hands does not get it before the waiters.
pub(super) async fn a_newcomer_does_not_overtake_a_waiter(stage: Stage) {
    let [one, two, newcomer] = stage.clients().await;
    for round in 0..8 {
        let name = stage.name(round);
        let held = one.lock(&name).await.expect("a free lock");
        let waiter = tokio::spawn({
            let (two, name) = (two.clone(), name.clone());
            async move {
                let guard = two.lock(&name).wait(secs(20)).await.expect("its turn comes");
                let token = guard.token();
                pause(5).await;
                release(guard).await;
                token
            }
        });
        queued(&one, &name, 1, secs(10)).await;
        let pushy = tokio::spawn({
            let (newcomer, name) = (newcomer.clone(), name.clone());
            async move {
                loop {
                    if let Some(guard) = newcomer.lock(&name).try_now().await.expect("an answer") {
                        let token = guard.token();
                        release(guard).await;
                        return token;
                    }
                }
            }
        });
        sleep(millis(3 * round)).await;
        release(held).await;
        let waited = done("the waiter", secs(20), waiter).await.expect("no task fails");
        let pushed = done("the newcomer", secs(20), pushy).await.expect("no task fails");
        assert!(pushed > waited, "round {round}: the newcomer's token {pushed}, the waiter's {waited}");
    }
}
