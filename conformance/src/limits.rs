//! What ends a hold though its holder is alive, and what delays the next grant.

use std::time::Duration;

use super::stage::{KEPT, Stage, claim, done, free_by, millis, pause, release, secs, ttl_of, within};
use super::time::{now, sleep};
use lockwell_core::{ErrorKind, Loss, Mode, Moment, Requirement};

/// A guard is lost at the end of its longest hold, not much later, and the lock is free for the next.
pub(super) async fn a_hold_ends_with_its_longest_time(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("long");
    let longest = millis(400);
    // It counts from the grant, which may be some time before this task goes on.
    let began = now();
    let guard = one.lock(&name).max_hold(longest).await.expect("a free lock");
    let loss = done("the end of the hold", secs(5), guard.lost()).await;
    assert_eq!(loss, Loss::HeldTooLong);
    assert!(now().since(began) >= longest, "lost too early");
    assert!(!guard.is_held());
    // The default ttl is far longer than this: the lock was released, its lease did not end.
    let (next, _) = free_by(&two, &name, secs(3), "after the longest hold").await;
    assert!(next.token() > guard.token() || !two.capabilities().promises(Requirement::Fencing));
    assert_eq!(guard.release().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert!(next.is_held());
    release(next).await;
}

/// A worker that reports keeps its lock over many leases; one that is stuck loses it.
pub(super) async fn a_lock_without_progress_is_released(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("stuck");
    let progress = millis(1000);
    let guard = one.lock(&name).progress_within(progress).await.expect("a free lock");
    let mut reported = now();
    for _ in 0..12 {
        pause(150).await;
        let reports = now();
        guard.progress();
        let is_held = guard.is_held();
        // On a machine that stood still the report came too late.
        if now().since(reported) >= progress {
            break;
        }
        assert!(is_held, "a worker that reports: {guard:?}");
        reported = reports;
    }
    let loss = done("the loss of the stuck", progress + secs(5), guard.lost()).await;
    assert_eq!(loss, Loss::NoProgress);
    guard.progress();
    assert!(!guard.is_held(), "a report that comes too late changes nothing");
    let (next, _) = free_by(&two, &name, secs(3), "after a stuck worker").await;
    drop(guard);
    pause(100).await;
    assert!(next.is_held());
    release(next).await;
}

fn was_delayed(dead: Moment, delay: Duration) {
    let took = now().since(dead);
    assert!(took >= delay, "granted again after {took:?}, the lock delay is {delay:?}");
}

/// After a holder that died, the lock delay passes; after a release it does not.
pub(super) async fn a_lock_delay_follows_a_crash_only(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("delay");
    let (ttl, delay) = (ttl_of(&one, KEPT), millis(1500));
    let kept = one.lock(&name).ttl(ttl).lock_delay(delay).await.expect("a free lock");
    assert!(kept.time_left() <= ttl, "the validity does not last into the delay: {:?}", kept.time_left());
    sleep(ttl * 3).await;
    assert!(kept.is_held() && kept.time_left() <= ttl, "a renewal neither: {:?}", kept.time_left());
    release(kept).await;
    // A lock that is free is free at once.
    let (guard, _) = free_by(&two, &name, secs(1), "after a release").await;
    release(guard).await;
    let dead = claim(&name, Mode::Exclusive, ttl, within(secs(1))).with_lock_delay(delay);
    let asked = now();
    let grant = one.backend().acquire(&dead).await.expect("an answer").expect("a free lock");
    let died = now();
    assert!(grant.deadline().since(died) <= ttl, "the validity does not last into the delay");
    let next = two.lock(&name).wait(ttl + delay + secs(8)).await.expect("the lease of the dead holder ends");
    was_delayed(asked, ttl + delay);
    release(next).await;
}

/// A guard that was lost does not end the delay by being dropped.
pub(super) async fn a_lost_guard_does_not_end_the_lock_delay(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("delay");
    let (longest, delay) = (millis(200), millis(1500));
    let asked = now();
    let guard = one.lock(&name).max_hold(longest).lock_delay(delay).await.expect("a free lock");
    done("the end of the hold", secs(5), guard.lost()).await;
    drop(guard);
    let next = two.lock(&name).wait(secs(15)).await.expect("its turn comes");
    was_delayed(asked, longest + delay);
    release(next).await;
}
