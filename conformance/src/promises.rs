//! What a backend promises beyond what other cases need: such promises must not be false.

use super::stage::{Stage, assert_within, done, holder, pause, queued, release, secs, ttl_of};
use super::time::now;
use crate::{Link, Need, lateness};
use lockwell_core::{LockName, Locks, Loss, Requirement};

/// A backend that promises to notify holders of a loss does so at once, not with the next renewal.
pub(super) async fn a_loss_is_notified_as_soon_as_promised(stage: Stage) {
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
    // Other guards report no loss.
    let other = one.lock(stage.name("other")).ttl(ttl).await.expect("a free lock");
    pause(500).await;
    assert!(other.is_held(), "{:?}", other.lease_state());
    release(other).await;
}

/// A backend that promises to notify waiters does not let them poll once a second.
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
            async move { (request.await.expect("its turn comes"), now()) }
        });
        if stage.harness.offers().contains(&Need::Counted) {
            queued(&one, &name, 1, secs(5)).await;
        }
        // At different times since the waiter came, so that nobody asks just then by chance.
        pause(300 + 130 * u64::from(round)).await;
        release(held).await;
        let released = now();
        let (guard, granted) = done("the waiter's turn", secs(15), waiter).await.expect("no panic");
        // Less what the machine was late by.
        took.push(granted.since(released).saturating_sub(lateness::since(released)));
        release(guard).await;
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    // Half of the pause of a waiter that polls twice a second.
    assert!(
        median < std::time::Duration::from_millis(250),
        "woken after {median:?}: {took:?}, promised is push"
    );
}

/// If a backend promises to be herd-free, one waiter sends a request when a lock becomes free, and not all
/// waiters: a hand-over takes no more requests with many waiters than with few.
pub(super) async fn a_release_wakes_one_waiter_as_promised(stage: Stage) {
    const FEW: usize = 2;
    const MANY: usize = 16;
    const ROUNDS: usize = 3;
    let holder = stage.client().await;
    if !holder.capabilities().promises(Requirement::HerdFree) {
        return;
    }
    let link = stage.link().await;
    let mut waiters = Vec::new();
    for _ in 0..MANY {
        waiters.push(link.client().await.expect("a client"));
    }
    // The least of several counts: waiters also say from time to time that they are still there.
    let (mut few, mut many) = (u64::MAX, u64::MAX);
    for round in 0..ROUNDS {
        let name = stage.name(format!("few{round}"));
        few = few.min(requests_of_hand_overs(&stage, &*link, &holder, &waiters[..FEW], &name).await);
        let name = stage.name(format!("many{round}"));
        many = many.min(requests_of_hand_overs(&stage, &*link, &holder, &waiters, &name).await);
    }
    // A backend may have found out meanwhile that notifications do not arrive, as behind some poolers, and
    // asks instead.
    let still = |one: &Locks| one.backend().capabilities().promises(Requirement::HerdFree);
    if !waiters.iter().all(still) {
        return;
    }
    // If all of them asked, a hand-over would take at least one request more for each of those who still
    // wait, which are half of them on average.
    let (few, many) = (few * 10 / FEW as u64, many * 10 / MANY as u64);
    assert!(
        many <= 2 * few + 20,
        "a hand-over takes {few} tenths of a request with {FEW} waiters and {many} with {MANY}, promised is herd_free"
    );
}

/// How many requests it takes until a lock that becomes free has gone from each of these waiters to the next.
async fn requests_of_hand_overs(
    stage: &Stage,
    link: &dyn Link,
    holder: &Locks,
    waiters: &[Locks],
    name: &LockName,
) -> u64 {
    let ttl = ttl_of(holder, 60_000);
    let held = holder.lock(name).ttl(ttl).await.expect("a free lock");
    let waiting = waiters.iter().map(|one| {
        let request = one.lock(name).ttl(ttl).wait(secs(60));
        tokio::spawn(async move {
            let guard = request.await.expect("its turn comes");
            // Time to ask for those who were woken for nothing.
            pause(10).await;
            release(guard).await;
        })
    });
    let waiting: Vec<_> = waiting.collect();
    if stage.harness.offers().contains(&Need::Counted) {
        queued(holder, name, waiters.len(), secs(20)).await;
    }
    // What they asked on their way into the queue has been answered by then.
    pause(500).await;
    let before = link.requests();
    release(held).await;
    for waiter in waiting {
        done("a waiter's turn", secs(40), waiter).await.expect("no panic");
    }
    link.requests() - before
}

/// If a backend promises to be failover-safe, no grant is lost when another server takes over.
pub(super) async fn a_failover_grants_nothing_twice_as_promised(stage: Stage) {
    const LOCKS: usize = 20;
    let [one, two] = stage.clients().await;
    if !one.capabilities().promises(Requirement::FailoverSafe) {
        return;
    }
    let ttl = ttl_of(&one, 60_000);
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        guards.push(one.lock(stage.name(number)).ttl(ttl).await.expect("a free lock"));
    }
    stage.server().fail_over().await;
    let began = now();
    for guard in &guards {
        loop {
            // Until another server has taken over, nobody is answered.
            match two.lock(guard.name()).try_now().await {
                Ok(None) => break,
                Ok(Some(_)) => {
                    assert!(
                        !guard.is_held(),
                        "{} was granted twice, promised is failover_safe",
                        guard.name()
                    );
                    panic!("{} was lost by the failover, promised is failover_safe", guard.name());
                }
                Err(error) => {
                    assert!(error.is_retryable(), "after the failover: {error:#}");
                    assert_within(began, ttl / 2, || format!("no answer after the failover: {error:#}"));
                }
            }
            pause(50).await;
        }
        assert_eq!(holder(&two, guard.name()).await, Some(guard.token()), "the holder after the failover");
    }
    for guard in guards {
        let (name, token) = (guard.name().clone(), guard.token());
        release(guard).await;
        let next = two.lock(&name).wait(secs(20)).await.expect("a free lock");
        assert!(next.token() > token, "the token {} after {token}, promised is failover_safe", next.token());
        release(next).await;
    }
    stage.server().resume().await;
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

/// Otherwise cases would be left out without a word.
pub(super) async fn the_harness_offers_what_the_backend_promises(stage: Stage) {
    let locks = stage.client().await;
    let promised = Need::met_by(locks.capabilities());
    let offers = stage.harness.offers();
    for (need, _) in Need::OF_BACKENDS {
        let (said, kept) = (offers.contains(&need), promised.contains(&need));
        assert_eq!(said, kept, "{need:?}: the harness says {said}, the backend {kept}");
    }
    assert_eq!(offers.contains(&Need::Process), stage.harness.address().is_some(), "an address");
    assert_eq!(offers.contains(&Need::Server), stage.harness.server().is_some(), "switches of the server");
    assert_eq!(offers.contains(&Need::Link), stage.harness.link().await.is_some(), "a network that fails");
    assert!(locks.capabilities().min_ttl() <= secs(5), "the suite works with leases of a few seconds");
}
