//! Only the owner of a claim can renew or release it, and asking twice does no harm.

use std::num::NonZeroU32;

use super::stage::{
    KEPT, Stage, assert_took, claim, done, holder, is_refused, millis, pause, queued, release, secs, soon,
    ttl_of, within,
};
use super::time::{has_passed, now, sleep};
use lockwell_core::{Mode, Released, Renewal, Wait};

/// A claim that is asked for again after a lost answer is not in its own way. The later grant replaces the
/// earlier one, and its token is not lower.
pub(super) async fn an_acquire_that_is_repeated_is_granted_again(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("twice");
    let ttl = ttl_of(&one, 5000);
    for wait in [Wait::No, within(secs(2))] {
        let claim = claim(&name, Mode::Exclusive, ttl, wait);
        let first = one.backend().acquire(&claim).await.expect("an answer").expect("a free lock");
        let again = one.backend().acquire(&claim).await.expect("an answer").expect("it holds the lock");
        assert!(again.token() >= first.token(), "asked again, the claim got a lower token");
        // The answer of a retry can also come over another client's connection.
        let other = two.backend().acquire(&claim).await.expect("an answer").expect("it holds the lock");
        assert!(other.token() >= again.token(), "asked elsewhere, the claim got a lower token");
        assert_eq!(holder(&two, &name).await, Some(other.token()));
        assert_eq!(one.backend().release(&claim).await.expect("an answer"), Released::Released);
        assert_eq!(holder(&two, &name).await, None, "one release ends the claim");
    }
}

/// What a grant that was asked for again promises holds, also when others have queued meanwhile.
pub(super) async fn a_repeated_acquire_keeps_its_promise_before_waiters(stage: Stage) {
    asks_again(stage, Mode::Exclusive).await;
}

/// The same for a reader before a writer.
pub(super) async fn a_repeated_read_keeps_its_promise_before_writers(stage: Stage) {
    asks_again(stage, Mode::Shared).await;
}

/// The same for a permit.
pub(super) async fn a_repeated_permit_keeps_its_promise_before_waiters(stage: Stage) {
    asks_again(stage, Mode::Permit { limit: NonZeroU32::MIN }).await;
}

async fn asks_again(stage: Stage, mode: Mode) {
    let [one, two] = stage.clients().await;
    let name = stage.name("anew");
    let rival =
        || if let Mode::Permit { limit } = mode { two.permit(&name, limit.get()) } else { two.lock(&name) };
    // A client that was refused may ask in another way from now on.
    let held = rival().await.expect("a free lock");
    let ttl = ttl_of(&one, KEPT);
    let claim = claim(&name, mode, ttl, Wait::No);
    assert!(one.backend().acquire(&claim).await.expect("an answer").is_none(), "granted twice");
    release(held).await;
    let first = one.backend().acquire(&claim).await.expect("an answer").expect("a free lock");
    let waiting = tokio::spawn(rival().wait(secs(30)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    sleep(first.deadline().since(now()).mul_f64(0.7)).await;
    let again = one.backend().acquire(&claim).await.expect("an answer").expect("it holds the lock");
    assert!(again.token() >= first.token(), "asked again, the claim got a lower token");
    assert!(again.deadline() >= first.deadline(), "the lease is shorter than before");
    sleep(again.deadline().since(now()).saturating_sub(millis(50))).await;
    if !has_passed(again.deadline()) {
        assert!(!waiting.is_finished(), "granted to another within the validity of the first");
    }
    one.backend().release(&claim).await.expect("an answer");
    release(done("the waiter's turn", secs(20), waiting).await.expect("no panic").expect("its turn comes"))
        .await;
}

/// A release that is repeated is no error, and never frees the successor.
pub(super) async fn a_release_that_is_repeated_is_harmless(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("twice");
    let ttl = ttl_of(&one, 5000);
    let first = claim(&name, Mode::Exclusive, ttl, Wait::No);
    one.backend().acquire(&first).await.expect("an answer").expect("a free lock");
    assert_eq!(one.backend().release(&first).await.expect("an answer"), Released::Released);
    one.backend().release(&first).await.expect("a second release is no error");
    let second = two.lock(&name).try_now().await.expect("an answer").expect("a released lock is free");
    one.backend().release(&first).await.expect("a late release is no error");
    let found = holder(&one, &name).await;
    assert_eq!(found, Some(second.token()), "a late release freed the successor");
    is_refused(&one, &name, &second, "after a late release").await;
    release(second).await;
    let never = claim(&name, Mode::Exclusive, ttl, Wait::No);
    let answer = one.backend().release(&never).await.expect("a release of nothing is no error");
    assert_eq!(answer, Released::NotHeld, "this claim never held anything");
}

/// Whoever let the lease run out can do nothing to those who came after.
pub(super) async fn an_owner_who_is_late_changes_nothing(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("late");
    let ttl = ttl_of(&one, 250);
    let late = claim(&name, Mode::Exclusive, ttl, Wait::No);
    let grant = one.backend().acquire(&late).await.expect("an answer").expect("a free lock");
    let guard = two.lock(&name).wait(ttl + secs(10)).await.expect("the lease runs out");
    let end = now().after(secs(5));
    loop {
        // A renewal of a short lease times out soon, which on a busy machine says nothing.
        let answers = one.backend().renew(std::slice::from_ref(&grant), soon()).await;
        if !matches!(answers[..], [Renewal::Unknown(_)]) || has_passed(end) {
            assert!(matches!(answers[..], [Renewal::Lost]), "a lease that ran out was renewed: {answers:?}");
            break;
        }
    }
    assert_eq!(holder(&three, &name).await, Some(guard.token()), "after the late renewal");
    let answer = one.backend().release(&late).await.expect("an answer");
    assert_eq!(answer, Released::NotHeld, "a lease that ran out was released");
    assert_eq!(holder(&three, &name).await, Some(guard.token()), "after the late release");
    is_refused(&three, &name, &guard, "after the late release").await;
    assert!(guard.is_held());
    release(guard).await;
}

/// The validity of a grant ends before the server grants the lock to the next one.
pub(super) async fn validity_ends_before_the_lease(stage: Stage) {
    let [one, two] = stage.clients().await;
    for renewed in [false, true] {
        let name = stage.name(renewed);
        // One that is renewed must not end before that on a busy machine.
        let ttl = ttl_of(&one, if renewed { 2500 } else { 300 });
        let sent = now();
        let mine = claim(&name, Mode::Exclusive, ttl, Wait::No);
        let grant = one.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
        let mut deadline = grant.deadline();
        let mut latest = sent.after(ttl);
        if renewed {
            pause(100).await;
            latest = now().after(ttl);
            match one.backend().renew(&[grant], soon()).await.pop() {
                Some(Renewal::Renewed(until)) => deadline = until,
                other => panic!("a lease with time left is renewed, but {other:?}"),
            }
        }
        let next = two.lock(&name).wait(ttl + secs(10)).await.expect("the lease runs out");
        let granted = now();
        let excess = deadline.since(granted);
        assert!(excess.is_zero(), "renewed: {renewed}: valid for {excess:?} after the next was granted");
        // A deadline that is much too early would pass the test above and be of no use.
        assert!(deadline >= latest.before(ttl / 2), "a lease of {ttl:?} was valid for too short a time");
        let late = granted.since(deadline);
        assert_took(late, deadline, millis(3000), || "the lock was free after the deadline".to_owned());
        release(next).await;
    }
}

/// Releases that are asked for together may travel in one request. Each gets its own answer, even if some of
/// them hold nothing, and even if others take the locks at once.
pub(super) async fn releases_in_one_request_have_their_own_answers(stage: Stage) {
    const MANY: usize = 24;
    let [one, two] = stage.clients().await;
    let ttl = ttl_of(&one, 20_000);
    for round in 0..3 {
        let (mut claims, mut next_holders) = (Vec::new(), Vec::new());
        for n in 0..MANY {
            let name = stage.name(format!("{round}/{n}"));
            let held = claim(&name, Mode::Exclusive, ttl, Wait::No);
            if n % 4 == 3 {
                // It was never asked for: another holds the lock, or nobody.
                claims.push((held, Released::NotHeld));
                continue;
            }
            one.backend().acquire(&held).await.expect("an answer").expect("a free lock");
            next_holders.push(tokio::spawn(two.lock(&name).wait(secs(30)).into_future()));
            super::stage::queued(&two, &name, 1, secs(10)).await;
            claims.push((held, Released::Released));
        }
        let tasks: Vec<_> = claims
            .into_iter()
            .map(|(claim, expected)| {
                let backend = one.backend().clone();
                tokio::spawn(async move { (backend.release(&claim).await, expected, claim) })
            })
            .collect();
        for task in tasks {
            let (answer, expected, claim) = task.await.expect("no panic");
            assert_eq!(answer.expect("an answer"), expected, "round {round}: {claim:?}");
        }
        for next in next_holders {
            release(next.await.expect("no panic").expect("its turn comes")).await;
        }
    }
}
