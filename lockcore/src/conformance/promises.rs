//! What a backend promises beyond what other cases need: such promises must not be false.

use super::stage::{Stage, done, pause, queued, release, secs, ttl_of};
use crate::conformance::Need;
use crate::{Loss, Moment, Requirement};

/// A backend that promises to tell of losses does so at once, and not with the next renewal.
pub(super) async fn a_loss_is_told_as_soon_as_promised(stage: Stage) {
    let [one, two] = stage.clients().await;
    if !one.capabilities().promises(Requirement::LossPush) {
        return;
    }
    let name = stage.name("pushed");
    // The first renewal is due after a third of it.
    let ttl = ttl_of(&one, 60_000);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    // Whoever watches has begun by now.
    pause(500).await;
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1, "one holder was freed");
    let loss = done("the news of the loss, promised by loss_push", secs(5), guard.lost()).await;
    assert_eq!(loss, Loss::Taken);
    // Those who lost nothing are told nothing.
    let other = one.lock(stage.name("other")).ttl(ttl).await.expect("a free lock");
    pause(500).await;
    assert!(other.is_held(), "{:?}", other.lease_state());
    release(other).await;
}

/// A backend that promises to wake waiters does not let them find out by themselves, every second or so.
pub(super) async fn waiters_are_woken_as_soon_as_promised(stage: Stage) {
    const ROUNDS: u32 = 9;
    let [one, two] = stage.clients().await;
    if !one.capabilities().promises(Requirement::Push) {
        return;
    }
    let ttl = ttl_of(&one, 60_000);
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let name = stage.name(round);
        let held = one.lock(&name).ttl(ttl).await.expect("a free lock");
        let waiter = tokio::spawn({
            let request = two.lock(&name).ttl(ttl).wait(secs(20));
            async move { (request.await.expect("its turn comes"), Moment::now()) }
        });
        if stage.harness.offers().contains(&Need::Counted) {
            queued(&one, &name, 1, secs(5)).await;
        }
        // At different times since the waiter came, so that nobody asks just then by chance.
        pause(300 + 130 * u64::from(round)).await;
        release(held).await;
        let released = Moment::now();
        let (guard, granted) = done("the waiter's turn", secs(15), waiter).await.expect("no panic");
        took.push(granted.since(released));
        release(guard).await;
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    // Half of the time between two looks of one who looks twice in a second.
    assert!(
        median < std::time::Duration::from_millis(250),
        "woken after {median:?}: {took:?}, promised is push"
    );
}

/// A backend that promises to work across hosts can at least be reached by another process, over a network.
pub(super) async fn what_works_across_hosts_leaves_the_process(stage: Stage) {
    let locks = stage.client().await;
    if !locks.capabilities().promises(Requirement::AcrossHosts) {
        return;
    }
    let offers = stage.harness.offers();
    for need in [Need::Process, Need::Link] {
        assert!(offers.contains(&need), "across_hosts is promised, and the harness does not offer {need:?}");
    }
}
