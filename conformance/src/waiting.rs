//! Waiting: for as long as was asked for, and nothing stays behind.

use super::stage::{
    LATE, Stage, assert_took, claim, done, free_by, is_refused, millis, queued, release, secs, ttl_of, within,
};
use super::time::now;
use lockwell_core::{ErrorKind, Mode, Requirement, Wait};

/// A wait ends neither early nor much too late.
pub(super) async fn timeouts_are_punctual(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("held");
    let held = one.lock(&name).await.expect("a free lock");
    // The first call may open connections.
    assert!(two.lock(&name).try_now().await.expect("an answer").is_none());
    for wait in [millis(50), millis(300), millis(1200)] {
        let began = now();
        let error = two.lock(&name).wait(wait).await.expect_err("the lock is held");
        let took = now().since(began);
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
        assert!(error.is_retryable(), "{error:#}");
        assert!(took >= wait, "a wait of {wait:?} ended after {took:?}");
        assert_took(took, began, wait + LATE, || format!("a wait of {wait:?} ended"));
    }
    release(held).await;
}

/// Behind a slow network a free lock is granted however short the wait is, and a held one is said to be held.
pub(super) async fn a_short_wait_covers_the_first_answer(stage: Stage) {
    let link = stage.link().await;
    let one = stage.client().await;
    let two = link.client().await.expect("a client behind the network");
    let (free, taken) = (stage.name("free"), stage.name("held"));
    release(two.lock(&free).await.expect("a free lock")).await;
    let held = one.lock(&taken).await.expect("a free lock");
    link.delay(millis(40));
    for wait in [millis(0), millis(1), millis(30)] {
        let asked = now();
        let guard = two.lock(&free).wait(wait).await;
        let took = now().since(asked);
        release(guard.unwrap_or_else(|error| panic!("the first answer to a wait of {wait:?}: {error:#}")))
            .await;
        assert!(took + millis(20) >= millis(80), "an answer after {took:?}: nothing was put to the test");
        let all = two.lock_all([&free]).wait(wait).await;
        let all =
            all.unwrap_or_else(|error| panic!("the first answer to a wait of {wait:?} for all: {error:#}"));
        all.release().await.expect("a release");
        let error = two.lock(&taken).wait(wait).await.expect_err("the lock is held");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "a wait of {wait:?}: {error:#}");
        // What is granted of these is released in the background.
        let error = two.lock_all([&stage.name("other"), &taken]).wait(wait).await.expect_err("one is held");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "a wait of {wait:?} for all: {error:#}");
    }
    link.heal();
    queued(&one, &taken, 0, secs(5)).await;
    release(held).await;
}

/// `try_now` does not wait: neither for a held lock nor for a free one.
pub(super) async fn try_now_answers_at_once(stage: Stage) {
    let [one, two] = stage.clients().await;
    let (name, warm) = (stage.name("held"), stage.name("warm"));
    release(two.lock(&warm).try_now().await.expect("an answer").expect("a free lock")).await;
    let held = one.lock(&name).try_now().await.expect("an answer").expect("a free lock");
    let began = now();
    is_refused(&two, &name, &held, "at once").await;
    let took = now().since(began);
    assert_took(took, began, LATE, || "the lock is held, and the answer came".to_owned());
    queued(&one, &name, 0, secs(1)).await;
    release(held).await;
    let again = two.lock(&name).try_now().await.expect("an answer");
    release(again.expect("a released lock is free")).await;
}

/// A waiter that stops waiting leaves the queue, and those behind it move up.
pub(super) async fn a_wait_that_ended_leaves_no_trace(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("held");
    let held = one.lock(&name).await.expect("a free lock");
    let impatient = tokio::spawn({
        let (two, name) = (two.clone(), name.clone());
        async move { two.lock(&name).wait(secs(2)).await.map(|guard| guard.token()) }
    });
    queued(&one, &name, 1, secs(5)).await;
    let patient = tokio::spawn({
        let (three, name) = (three.clone(), name.clone());
        async move { three.lock(&name).wait(secs(30)).await.expect("its turn comes") }
    });
    queued(&one, &name, 2, secs(5)).await;
    let error = impatient.await.expect("no panic").expect_err("the lock is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    queued(&one, &name, 1, secs(2)).await;
    release(held).await;
    release(done("the one behind", secs(3), patient).await.expect("no panic")).await;
    queued(&one, &name, 0, secs(1)).await;
    let (free, _) = free_by(&two, &name, secs(2), "after all of that").await;
    release(free).await;
}

/// A waiter watches the lease of the present holder, not of the one that held the lock when it came.
pub(super) async fn a_short_lease_after_a_long_one_ends_in_time(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("held");
    let long = one.lock(&name).ttl(ttl_of(&one, 30_000)).await.expect("a free lock");
    let short = ttl_of(&two, 300);
    // Granted in its turn and never renewed: a process that died while it waited.
    let dead = tokio::spawn({
        let (backend, claim) =
            (two.backend().clone(), claim(&name, Mode::Exclusive, short, within(secs(20))));
        async move { backend.acquire(&claim).await }
    });
    queued(&one, &name, 1, secs(5)).await;
    let behind = tokio::spawn({
        let (three, name) = (three.clone(), name.clone());
        async move { three.lock(&name).wait(secs(25)).await.expect("its turn comes") }
    });
    queued(&one, &name, 2, secs(5)).await;
    release(long).await;
    let granted = done("the dead one's turn", secs(3), dead).await.expect("no panic").expect("an answer");
    let granted = granted.expect("its turn comes");
    let began = now();
    let guard = done("the turn of the one behind", secs(20), behind).await.expect("no panic");
    let took = now().since(began);
    assert_took(took, began, short + secs(2), || format!("a lease of {short:?} was followed by the next"));
    assert!(guard.token() > granted.token() || !one.capabilities().promises(Requirement::Fencing));
    release(guard).await;
}

/// Without a limit one waits for as long as it takes.
pub(super) async fn waiting_without_a_limit_ends_with_the_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("held");
    let claim = claim(&name, Mode::Exclusive, ttl_of(&one, 5000), Wait::No);
    one.backend().acquire(&claim).await.expect("an answer").expect("a free lock");
    let waiter = tokio::spawn({
        let (two, name) = (two.clone(), name.clone());
        async move { two.lock(&name).wait(millis(1)).wait_forever().await.expect("its turn comes") }
    });
    queued(&one, &name, 1, secs(5)).await;
    one.backend().release(&claim).await.expect("an answer");
    release(done("its turn", secs(3), waiter).await.expect("no panic")).await;
}
