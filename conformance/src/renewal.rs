//! Leases are kept alive while somebody holds them.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::dropping::elsewhere;
use super::stage::{KEPT, Stage, claim, done, free_by, holder, millis, pause, release, secs, soon, ttl_of};
use super::time::{self, now};
use lockwell_core::{ErrorKind, Grant, LockGuard, Locks, Mode, Renewal, Wait};

/// A lock is held for five times its lease, and no one else gets it in that time.
pub(super) async fn a_lock_is_kept_for_five_leases(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("kept");
    let ttl = ttl_of(&one, KEPT);
    let before = one.stats().renewals;
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    let error = two.lock(&name).wait(ttl * 5).await.expect_err("the lock is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    assert!(guard.is_held(), "lost after {:?} of waiting by another: {:?}", ttl * 5, guard.lease_state());
    assert_eq!(holder(&two, &name).await, Some(guard.token()));
    let stats = one.stats();
    assert!(stats.renewals >= before + 5, "five leases need at least five renewals: {stats:?}");
    assert_eq!(stats.held, 1, "{stats:?}");
    release(guard).await;
    assert_eq!(one.stats().held, 0);
    let (next, _) = free_by(&two, &name, secs(2), "after the release").await;
    release(next).await;
}

/// An application that blocks all threads of its runtime keeps its locks.
pub(super) async fn a_blocked_runtime_keeps_its_locks(stage: Stage) {
    let two = stage.client().await;
    let name = stage.name("blocked");
    let ttl = ttl_of(&two, KEPT);
    let (hold, held) = tokio::sync::oneshot::channel();
    let blocked = tokio::spawn(elsewhere({
        let (stage, name) = (stage.clone(), name.clone());
        async move {
            let guard = stage.client().await.lock(&name).ttl(ttl).await.expect("a free lock");
            hold.send(guard.token()).expect("the case listens");
            // More tasks than the runtime has threads, this one's included.
            let block = || tokio::spawn(async move { time::block(&time::clock(), ttl * 3) });
            let blocks = [block(), block(), block(), block()];
            time::block(&time::clock(), ttl * 3);
            let state = guard.is_held().then_some(()).ok_or_else(|| guard.lease_state());
            // From the release on nothing is renewed, and it needs a thread of the runtime to be sent.
            for block in blocks {
                block.await.expect("no panic");
            }
            release(guard).await;
            state
        }
    }));
    let token = held.await.expect("the other runtime gets the lock");
    let error = two.lock(&name).wait(ttl * 2 + ttl / 2).await.expect_err("the lock is held");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    assert_eq!(holder(&two, &name).await, Some(token));
    let state = blocked.await.expect("no panic");
    assert!(state.is_ok(), "the blocked runtime lost its lock: {state:?}");
}

/// How many locks are taken or released at a time where none of that is tested: other cases keep short leases
/// meanwhile.
const AT_A_TIME: usize = 100;

/// Takes many locks, as raw grants.
async fn take_many(locks: &Locks, stage: &Stage, many: usize, ttl: Duration) -> Vec<Grant> {
    let acquires = (0..many).map(|n| {
        let claim = claim(&stage.name(n), Mode::Exclusive, ttl, Wait::No);
        async move { locks.backend().acquire(&claim).await.expect("an answer").expect("a free lock") }
    });
    stream::iter(acquires).buffered(AT_A_TIME).collect().await
}

/// One answer for each grant, in the order of the grants, the lost ones told apart.
pub(super) async fn many_leases_are_renewed_in_one_call(stage: Stage) {
    const MANY: usize = 1200;
    let [one, two] = stage.clients().await;
    let ttl = ttl_of(&one, 60_000);
    let grants = take_many(&one, &stage, MANY, ttl).await;
    assert!(one.backend().renew(&[], soon()).await.is_empty(), "no grants, no answers");
    let is_lost = |at: usize| at % 97 == 13;
    for (at, grant) in grants.iter().enumerate().filter(|(at, _)| is_lost(*at)) {
        let freed = two.force_release(grant.claim().name()).await.expect("an answer");
        assert_eq!(freed, 1, "lock {at}");
    }
    match done("the list of locks", secs(30), two.backend().names()).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => (),
        listed => {
            let listed: HashSet<_> = listed.expect("a list").into_iter().collect();
            let held = grants.iter().enumerate().filter(|(at, _)| !is_lost(*at));
            let missing = held.filter(|(_, grant)| !listed.contains(grant.claim().name())).count();
            assert_eq!(missing, 0, "held locks that are not among the {} that are listed", listed.len());
        }
    }
    let sent = now();
    let answers = done("the renewal", secs(30), one.backend().renew(&grants, soon())).await;
    assert_eq!(answers.len(), MANY, "one answer for each grant");
    for (at, answer) in answers.iter().enumerate() {
        match answer {
            Renewal::Renewed(deadline) if !is_lost(at) => {
                assert!(*deadline > sent.after(ttl / 2), "lease {at} was not extended");
                assert!(*deadline > grants[at].deadline(), "lease {at} was not extended");
            }
            Renewal::Lost if is_lost(at) => (),
            other => panic!("lease {at}, lost: {}, but the answer is {other:?}", is_lost(at)),
        }
    }
    let releases = grants.into_iter().map(|grant| {
        let backend = one.backend().clone();
        async move { backend.release(grant.claim()).await.map(drop) }
    });
    let released: Vec<_> = stream::iter(releases).buffered(AT_A_TIME).collect().await;
    assert!(released.iter().all(Result::is_ok), "{:?}", released.iter().find(|one| one.is_err()));
}

/// One client, many guards: all are renewed, in few calls.
pub(super) async fn a_thousand_locks_are_kept(stage: Stage) {
    const MANY: u32 = 1000;
    let one = stage.client().await;
    let ttl = ttl_of(&one, 9000);
    let requests = (0..MANY).map(|n| one.lock(stage.name(n)).ttl(ttl).wait(secs(30)).into_future());
    let guards: Vec<_> = stream::iter(requests).buffered(AT_A_TIME).collect().await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("a free lock")).collect();
    let began = now();
    let before = one.stats();
    while now().since(began) < ttl + secs(1) {
        pause(50).await;
    }
    let stats = one.stats();
    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).map(LockGuard::lease_state).collect();
    assert!(lost.is_empty(), "{} of {MANY} locks lost, the first {:?}; {stats:?}", lost.len(), lost[0]);
    assert!(stats.renewals >= before.renewals + u64::from(MANY), "{before:?}, then {stats:?}");
    assert!(stats.renewal_calls <= stats.renewals / 10, "leases are not renewed together: {stats:?}");
    stream::iter(guards.into_iter().map(release)).buffer_unordered(AT_A_TIME).collect::<Vec<()>>().await;
    assert_eq!(one.stats().held, 0);
}

/// A grant whose answer took a good part of the lease is renewed all the same.
pub(super) async fn a_lock_is_kept_over_a_slow_network(stage: Stage) {
    let link = stage.link().await;
    let [two] = stage.clients().await;
    let one = link.client().await.expect("a client behind the network");
    let name = stage.name("slow");
    release(one.lock(&name).await.expect("a free lock")).await;
    let ttl = ttl_of(&one, 3000);
    // The answer comes after a good third of the lease, when the first renewal is due already.
    let mut delay = ttl / 5;
    let guard = loop {
        link.delay(delay);
        let asked = now();
        // Patience would hide an answer that comes after the lease has ended.
        let asking = one.lock(&name).ttl(ttl).wait(secs(20)).patience(Duration::ZERO);
        let guard = asking.await.expect("a free lock");
        let took = now().since(asked);
        assert!(took + millis(20) >= delay * 2, "an answer after {took:?}: nothing was put to the test");
        if took < delay * 3 || delay < ttl / 5 {
            break guard;
        }
        // It took two round trips. A renewal that begins before the network is fast again comes too late.
        drop(guard.release().await);
        delay = ttl / 10;
    };
    link.delay(millis(5));
    let began = now();
    while now().since(began) < ttl * 3 {
        assert!(
            guard.is_held(),
            "lost: {:?}, {:?}; {:?}",
            guard.lease_state(),
            guard.renewal_failure(),
            one.stats()
        );
        pause(20).await;
    }
    assert_eq!(holder(&two, &name).await, Some(guard.token()));
    release(guard).await;
}
