//! Requests and replies that are lost or late.

use std::time::Duration;

use super::stage::{
    LATE, Stage, assert_took, assert_within, claim, done, free_by, holder, is_refused, millis, pause, queued,
    release, secs, ttl_of, within,
};
use super::time::now;
use crate::Way;
use lockwell_core::{Error, ErrorKind, LockGuard, LockName, Locks, Mode, Operation, Released};

/// However short its wait is, a claim has this time for its first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Whether an error correctly reports a failure of the network or the end of the time.
pub(super) fn is_honest(error: &Error) -> bool {
    let honest = [ErrorKind::Unreachable, ErrorKind::UnknownOutcome, ErrorKind::TimedOut];
    honest.contains(&error.kind()) && error.is_retryable()
}

/// A request into a black hole ends with its wait, and leaves nothing.
async fn black_hole(stage: Stage, way: Way) {
    let link = stage.link().await;
    let two = stage.client().await;
    let one = link.client().await.expect("a client behind the network");
    let name = stage.name("hole");
    release(one.lock(&name).await.expect("a free lock")).await;
    let ttl = ttl_of(&one, 2000);
    link.blackhole(way);
    let (began, wait) = (now(), secs(1));
    let error = one.lock(&name).ttl(ttl).wait(wait).await.expect_err("no answer can come");
    let took = now().since(began);
    assert!(is_honest(&error), "{error:#}");
    assert_took(took, began, wait + LATE, || format!("a wait of {wait:?} ended: {error:#}"));
    // The network stays as it is: a grant whose answer was lost ends with its lease.
    let (guard, _) = free_by(&two, &name, ttl + secs(1), "after an acquire into a black hole").await;
    link.heal();
    // The clean-up comes through now, and must not hit the new holder.
    pause(500).await;
    assert_eq!(holder(&two, &name).await, Some(guard.token()), "the clean-up freed another's lock");
    queued(&two, &name, 0, secs(3)).await;
    assert!(guard.is_held());
    release(guard).await;
    let (guard, _) = free_by(&one, &name, secs(5), "by the client that came back").await;
    release(guard).await;
}

/// Nothing goes either way.
pub(super) async fn an_acquire_into_a_black_hole_ends_with_its_wait(stage: Stage) {
    black_hole(stage, Way::Both).await;
}

/// The request arrives, its reply does not.
pub(super) async fn an_acquire_whose_reply_never_comes_leaves_nothing(stage: Stage) {
    black_hole(stage, Way::ToClient).await;
}

/// The end of a wait does not wait for the network.
pub(super) async fn timeouts_are_punctual_in_a_black_hole(stage: Stage) {
    for way in [Way::Both, Way::ToServer, Way::ToClient] {
        let link = stage.link().await;
        let one = link.client().await.expect("a client behind the network");
        let name = stage.name(format!("{way:?}"));
        release(one.lock(&name).await.expect("a free lock")).await;
        link.blackhole(way);
        for wait in [millis(1400), millis(100)] {
            let began = now();
            let error = one.lock(&name).ttl(ttl_of(&one, 1000)).wait(wait).await.expect_err("no answer");
            let took = now().since(began);
            assert!(is_honest(&error), "{way:?}: {error:#}");
            // It covers the first answer, and none comes.
            let limit = wait.max(FIRST_ANSWER) + LATE;
            assert_took(took, began, limit, || format!("{way:?}: a wait of {wait:?} ended: {error:#}"));
        }
        link.heal();
    }
}

/// Calls without a wait of their own end, too.
pub(super) async fn calls_into_a_black_hole_end(stage: Stage) {
    let link = stage.link().await;
    let one = link.client().await.expect("a client behind the network");
    let (name, held) = (stage.name("hole"), stage.name("held"));
    release(one.lock(&name).await.expect("a free lock")).await;
    let guard = one.lock(&held).ttl(ttl_of(&one, 2000)).await.expect("a free lock");
    link.blackhole(Way::Both);
    let limit = secs(12);
    let error = done("try_now", limit, one.lock(&name).try_now()).await.expect_err("no answer can come");
    assert!(is_honest(&error), "{error:#}");
    let error = done("release", limit, guard.release()).await.expect_err("no answer can come");
    // Its deadline may have passed meanwhile.
    assert!(is_honest(&error) || error.kind() == ErrorKind::Lost, "{error:#}");
    assert_eq!(error.operation(), Some(Operation::Release), "{error:#}");
    let error = done("inspect", limit, one.inspect(&name)).await.expect_err("no answer can come");
    assert!(is_honest(&error), "{error:#}");
    let error = done("force_release", limit, one.force_release(&name)).await.expect_err("no answer can come");
    assert!(is_honest(&error), "{error:#}");
    let error = done("held", limit, one.held()).await.expect_err("no answer can come");
    assert!(is_honest(&error) || error.kind() == ErrorKind::Unsupported, "{error:#}");
    link.heal();
}

/// The reply to the k-th request of an acquire is lost: while the client connects, and afterwards.
pub(super) async fn an_acquire_whose_reply_is_lost_is_cleaned_up(stage: Stage) {
    let two = stage.client().await;
    let (mut dropped, mut dropped_of_claims) = (0, 0);
    for (k, is_warm) in (1..=6).map(|k| (k, false)).chain([(1, true), (2, true)]) {
        let link = stage.link().await;
        let one = link.client().await.expect("a client behind the network");
        let name = stage.name(format!("{k}/{is_warm}"));
        if is_warm {
            release(one.lock(stage.name(format!("{k}/warm"))).await.expect("a free lock")).await;
        }
        let ttl = ttl_of(&one, 3000);
        link.drop_reply(k);
        let answer = one.lock(&name).ttl(ttl).wait(secs(3)).await;
        match answer {
            Ok(guard) => {
                assert!(guard.is_held(), "k = {k}: granted and not held");
                assert_eq!(holder(&two, &name).await, Some(guard.token()), "k = {k}");
                is_refused(&two, &name, &guard, &format!("k = {k}")).await;
                release(guard).await;
            }
            Err(error) => assert!(is_honest(&error), "k = {k}: {error:#}"),
        }
        dropped += link.dropped_replies();
        dropped_of_claims += if is_warm { link.dropped_replies() } else { 0 };
        link.heal();
        let what = format!("k = {k}, after a lost reply to an acquire");
        let (guard, _) = free_by(&two, &name, ttl, &what).await;
        queued(&two, &name, 0, secs(3)).await;
        release(guard).await;
    }
    assert!(dropped > 0, "no reply was lost: nothing was put to the test");
    assert!(dropped_of_claims > 0, "no reply to a claim was lost: nothing was put to the test");
}

/// The reply to the k-th request of a release is lost.
pub(super) async fn a_release_whose_reply_is_lost_is_repeated(stage: Stage) {
    let two = stage.client().await;
    let mut dropped = 0;
    for k in 1..=6 {
        let link = stage.link().await;
        let one = link.client().await.expect("a client behind the network");
        let name = stage.name(k);
        let ttl = ttl_of(&one, 3000);
        let guard = one.lock(&name).ttl(ttl).wait(secs(3)).await.expect("a free lock");
        link.drop_reply(k);
        if let Err(error) = guard.release().await {
            // Above all not `Lost`: nobody has taken the lock away.
            assert!(is_honest(&error), "k = {k}: {error:#}");
        }
        dropped += link.dropped_replies();
        link.heal();
        let what = format!("k = {k}, after a lost reply to a release");
        let (guard, _) = free_by(&two, &name, ttl, &what).await;
        release(guard).await;
    }
    assert!(dropped > 0, "no reply was lost: nothing was put to the test");
}

/// The same with somebody waiting, who takes the lock before the release can be repeated. The repetition then
/// finds another holder, which is no loss.
pub(super) async fn a_release_whose_reply_is_lost_is_not_called_a_loss(stage: Stage) {
    let two = stage.client().await;
    let mut dropped = 0;
    for k in 1..=3 {
        let link = stage.link().await;
        let one = link.client().await.expect("a client behind the network");
        let name = stage.name(k);
        let guard = one.lock(&name).ttl(ttl_of(&one, 10_000)).wait(secs(3)).await.expect("a free lock");
        let waiter = tokio::spawn(two.lock(&name).wait(secs(20)).into_future());
        queued(&two, &name, 1, secs(5)).await;
        // The repetition takes its time, the waiter does not.
        link.delay(millis(40));
        link.drop_reply(k);
        let answer = guard.release().await;
        dropped += link.dropped_replies();
        link.heal();
        if let Err(error) = answer {
            assert!(is_honest(&error), "k = {k}: {error:#}");
        }
        let next = done("the waiter's turn", secs(15), waiter).await.expect("no panic");
        release(next.expect("its turn comes")).await;
    }
    assert!(dropped > 0, "no reply was lost: nothing was put to the test");
}

/// The same for a lock that was lost before. A repetition that finds nothing does not prove that the lock was
/// released.
pub(super) async fn a_repeated_release_of_a_lost_lock_is_in_doubt(stage: Stage) {
    let two = stage.client().await;
    let mut dropped = 0;
    for k in 1..=3 {
        let link = stage.link().await;
        let one = link.client().await.expect("a client behind the network");
        let name = stage.name(k);
        let ours = claim(&name, Mode::Exclusive, ttl_of(&one, 10_000), within(secs(3)));
        one.backend().acquire(&ours).await.expect("an answer").expect("a free lock");
        assert_eq!(two.force_release(&name).await.expect("an answer"), 1, "k = {k}");
        let next = two.lock(&name).wait(secs(5)).await.expect("a free lock");
        link.drop_reply(k);
        let answer = one.backend().release(&ours).await;
        dropped += link.dropped_replies();
        link.heal();
        match answer {
            Ok(answer) => assert_ne!(answer, Released::Released, "k = {k}: another had taken the lock"),
            Err(error) => assert!(is_honest(&error), "k = {k}: {error:#}"),
        }
        release(next).await;
    }
    assert!(dropped > 0, "no reply was lost: nothing was put to the test");
}

/// The lock, tried for until it is granted.
async fn granted_by(locks: &Locks, name: &LockName, limit: Duration, what: &str) -> LockGuard {
    let began = now();
    loop {
        if let Some(guard) = locks.lock(name).try_now().await.expect("an answer") {
            return guard;
        }
        if now().since(began) > limit {
            let status = locks.inspect(name).await;
            assert_within(began, limit, || format!("{what}: the lock is not free: {status:?}"));
        }
        pause(50).await;
    }
}

/// An acquire gets no answer, is repeated on a new connection and granted, and the lock is released. Then the
/// first copy arrives, of which nobody knows any more: it must not take the lock for nobody.
pub(super) async fn a_late_copy_of_an_acquire_does_not_block_the_lock(stage: Stage) {
    let link = stage.link().await;
    let two = stage.client().await;
    let one = link.client().await.expect("a client behind the network");
    let name = stage.name("late");
    // Long, so that a lock that nobody holds does not end by itself before the end of this case.
    let ttl = secs(60).clamp(one.capabilities().min_ttl(), one.capabilities().max_ttl());
    // This warms up the connection that a lock with such a lease uses, and the lock: the first request for
    // one that was never held may come to nothing.
    for _ in 0..2 {
        release(one.lock(&name).ttl(ttl).await.expect("a free lock")).await;
    }
    link.hold_back();
    let answer = match one.lock(&name).ttl(ttl).wait(secs(20)).await {
        Ok(guard) => guard.release().await,
        Err(error) => Err(error),
    };
    if let Err(error) = answer {
        assert!(is_honest(&error), "{error:#}");
        // The clean-up ends meanwhile, which would free the lock.
        pause(7000).await;
    }
    // What an idle lock leaves at the server may have been purged meanwhile. The copy must find it.
    release(granted_by(&two, &name, secs(15), "before the late copy").await).await;
    let delivered = link.deliver().await;
    assert!(delivered > 0, "nothing was held back: nothing was put to the test");
    // The server reads it.
    pause(500).await;
    let guard = granted_by(&two, &name, secs(15), "after a late copy of an acquire").await;
    for _ in 0..20 {
        pause(100).await;
        assert!(guard.is_held(), "a late copy took the lock away");
        assert_eq!(holder(&two, &name).await, Some(guard.token()), "a late copy took the lock away");
    }
    release(guard).await;
    link.heal();
}
