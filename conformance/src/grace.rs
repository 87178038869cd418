//! A server that may have forgotten grants. The period is begun by hand, as if the server had noticed that.

use std::future::IntoFuture as _;

use super::stage::{KEPT, Stage, done, holder, millis, pause, release, secs, status, ttl_of};
use super::time::{has_passed, now};
use lockwell_core::{ErrorKind, LockGuard, Requirement, Result};

/// How long the suite lets a holder live beyond its lease.
const BEYOND: u64 = 1000;

/// The answer to a claim that asks once, or waits for less time than the period lasts.
fn nothing_was_granted(answer: Result<Option<LockGuard>>, what: &str, is_known: bool) {
    match answer {
        Ok(None) if is_known => (),
        Ok(None) => panic!("{what}: nobody knows whether another holds it"),
        Ok(Some(guard)) => panic!("{what} was granted in a grace period, with token {}", guard.token()),
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::GracePeriod | ErrorKind::TimedOut) && error.is_retryable(),
            "{what}: {error:#}"
        ),
    }
}

/// Whoever has lost its record may still hold the lock, so nobody gets one, whatever its name and its mode.
pub(super) async fn nothing_is_granted_in_a_grace_period(stage: Stage) {
    let [one, two] = stage.clients().await;
    let (held, other) = (stage.name("held"), stage.name("other"));
    let guard = one.lock(&held).await.expect("a free lock");
    release(two.lock(&other).await.expect("a free lock")).await;
    let lasts = two.begin_grace().await.expect("this server has grace periods");
    let until = now().after(lasts);
    for locks in [&one, &two] {
        nothing_was_granted(locks.lock(&held).try_now().await, "a lock that is held", true);
        nothing_was_granted(locks.lock(&other).try_now().await, "a free lock", false);
        let waited = locks.lock(&other).wait(millis(300)).await;
        nothing_was_granted(waited.map(Some), "a free lock", false);
        if locks.capabilities().promises(Requirement::Shared) {
            nothing_was_granted(
                locks.read(stage.name("read")).try_now().await,
                "a free lock, to read",
                false,
            );
        }
        if locks.capabilities().promises(Requirement::Permits) {
            let permit = locks.permit(stage.name("permit"), 2).try_now().await;
            nothing_was_granted(permit, "a free permit", false);
        }
    }
    // Who waits behind another task of the process has asked nobody, and learns the same.
    let process = stage.process().await;
    let (ahead, behind) = (process.clone(), process.lock(&other).wait(millis(800)));
    let ahead = tokio::spawn(ahead.lock(&other).wait(secs(60)).into_future());
    pause(100).await;
    let error = behind.await.expect_err("a grace period");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    ahead.abort();
    assert!(!has_passed(until), "a grace period of {lasts:?} is too short for the suite");
    release(guard).await;
}

pub(super) async fn a_grace_period_takes_no_lock_from_its_holder(stage: Stage) {
    let [one, two] = stage.clients().await;
    let (name, freed) = (stage.name("kept"), stage.name("freed"));
    let ttl = ttl_of(&one, KEPT);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    let other = one.lock(&freed).await.expect("a free lock");
    two.begin_grace().await.expect("this server has grace periods");
    release(other).await;
    assert_eq!(holder(&two, &freed).await, None, "it was released");
    // Without its renewals its lease would be over.
    let end = now().after(ttl + millis(BEYOND));
    while !has_passed(end) {
        assert!(guard.is_held(), "a grace period took the lock from its holder: {:?}", guard.lease_state());
        pause(50).await;
    }
    assert_eq!(holder(&two, &name).await, Some(guard.token()), "the lock of a holder in a grace period");
    done("a release", secs(10), guard.release()).await.expect("held");
}

/// Whoever looks is not told that a lock is free, and the period begins anew if an operator says so.
pub(super) async fn who_holds_is_unknown_in_a_grace_period(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("unknown");
    release(one.lock(&name).await.expect("a free lock")).await;
    assert!(status(&two, &name).await.is_free());
    assert_eq!(two.grace_left().await.expect("an answer"), None, "before");
    let lasts = one.begin_grace().await.expect("this server has grace periods");
    let left = async |when: &str| {
        let left = two.grace_left().await.expect("an answer");
        let left = left.unwrap_or_else(|| panic!("{when}: the server says that it grants locks"));
        assert!(left <= lasts, "{when}: {left:?} of {lasts:?}");
        let status = status(&two, &name).await;
        let unknown = status.unknown_for.unwrap_or_else(|| panic!("{when}: called free: {status:?}"));
        assert!(!status.is_free() && unknown <= lasts, "{when}: {status:?}");
        left
    };
    left("at the beginning").await;
    pause(1000).await;
    let later = left("a second later").await;
    assert!(later <= lasts.saturating_sub(millis(900)), "{later:?} of {lasts:?} after a second");
    let asked = now();
    one.begin_grace().await.expect("once more");
    let anew = left("anew").await;
    let passed = now().since(asked);
    assert!(
        anew + passed + millis(500) > lasts,
        "it did not begin anew: {anew:?} after {later:?}, and {passed:?} have passed"
    );
}
