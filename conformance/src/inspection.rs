//! What the server says about a lock is true.

use super::stage::{
    EXPIRY, KEPT, Stage, assert_within, claim, millis, pause, queued, release, secs, status, ttl_of,
};
use super::time::{now, sleep};
use lockwell_core::{ErrorKind, LockStatus, Mode, Requirement, TraceParent, Wait};

/// A lock that nobody ever used, one that is held, one with a queue, one that is free again.
pub(super) async fn inspect_tells_the_truth(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("shown");
    let ttl = ttl_of(&one, 5000);
    let free = status(&two, &name).await;
    assert!(!free.is_held() && free.waiters == 0 && free.name == name, "never used: {free:?}");
    let began = now();
    let guard = one.lock(&name).ttl(ttl).label("the night shift, 夜").await.expect("a free lock");
    let granted = now();
    pause(150).await;
    let looked = now();
    let held = status(&two, &name).await;
    let [holder] = &held.holders[..] else { panic!("one holder: {held:?}") };
    assert_eq!(holder.token, guard.token());
    assert_eq!(holder.label, "the night shift, 夜");
    assert_eq!(holder.mode, Mode::Exclusive);
    assert!(holder.ttl_left <= ttl && holder.ttl_left >= ttl / 2, "{holder:?}");
    let (least, most) = (looked.since(granted), now().since(began) + millis(50));
    // The server's clock may count in milliseconds.
    assert!(
        holder.held_for + millis(50) >= least && holder.held_for <= most,
        "{holder:?}, not {least:?}..{most:?}"
    );
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(two.lock(&name).wait(secs(20)).into_future())).collect();
    queued(&one, &name, 3, secs(5)).await;
    for waiter in waiters {
        waiter.abort();
    }
    queued(&one, &name, 0, secs(3)).await;
    release(guard).await;
    let free = status(&two, &name).await;
    assert!(!free.is_held() && free.waiters == 0, "after a release: {free:?}");
}

/// The waiting time of the first in the queue does not start again with its heartbeats, and ends when it
/// leaves.
pub(super) async fn the_longest_wait_is_shown(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("waited for");
    let guard = one.lock(&name).await.expect("a free lock");
    assert_eq!(status(&two, &name).await.longest_wait, None, "nobody waits");
    let mut waiters = Vec::new();
    for locks in [&two, &one] {
        let before = now();
        let waiter = tokio::spawn(locks.lock(&name).wait(secs(60)).into_future());
        queued(&one, &name, waiters.len() + 1, secs(5)).await;
        waiters.push((waiter, before, now()));
        // Longer than the time between two heartbeats of a waiter.
        pause(2000).await;
    }
    for (waiter, before, entered) in waiters {
        let looked = now();
        let shown = status(&one, &name).await;
        let (least, most) = (looked.since(entered), now().since(before) + millis(50));
        let waited = shown.longest_wait.unwrap_or_else(|| panic!("somebody waits: {shown:?}"));
        // The server's clock may count in milliseconds.
        assert!(
            waited + millis(50) >= least && waited <= most,
            "{waited:?}, not {least:?}..{most:?}: {shown:?}"
        );
        let left = shown.waiters - 1;
        waiter.abort();
        queued(&one, &name, left, secs(3)).await;
    }
    assert_eq!(status(&two, &name).await.longest_wait, None, "nobody waits any more");
    release(guard).await;
}

/// The first waiters are named, in their order: without one that has left, or was granted the lock, and never
/// more than a status shows.
pub(super) async fn who_waits_is_shown(stage: Stage) {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let [one, two] = stage.clients().await;
    let name = stage.name("awaited");
    let guard = one.lock(&name).traceparent(TRACE).await.expect("a free lock");
    assert!(status(&two, &name).await.waiting.is_empty(), "nobody waits");
    let reads = one.capabilities().promises(Requirement::Shared);
    let mut waiters = Vec::new();
    for label in ["first", "second, 夜", "third"] {
        let request = if reads && label != "first" { two.read(&name) } else { one.lock(&name) };
        // A release cannot grant the lock to one with a lock delay, and its place may be stored in another way.
        let request = if label == "third" { request.traceparent(TRACE).lock_delay(secs(1)) } else { request };
        waiters.push(tokio::spawn(request.label(label).wait(secs(60)).into_future()));
        queued(&one, &name, waiters.len(), secs(5)).await;
    }
    let shown = status(&two, &name).await;
    let trace = |trace: &Option<TraceParent>| trace.as_ref().map(ToString::to_string);
    assert_eq!(trace(&shown.holders[0].traceparent).as_deref(), Some(TRACE), "{shown:?}");
    let seen: Vec<_> =
        shown.waiting.iter().map(|one| (one.label.as_str(), one.mode, trace(&one.traceparent))).collect();
    let mode = if reads { Mode::Shared } else { Mode::Exclusive };
    assert_eq!(
        seen,
        [
            ("first", Mode::Exclusive, None),
            ("second, 夜", mode, None),
            ("third", mode, Some(TRACE.to_owned()))
        ],
        "{shown:?}"
    );
    waiters.remove(1).abort();
    queued(&one, &name, 2, secs(3)).await;
    assert_eq!(labels(&status(&two, &name).await), ["first", "third"], "one has left");
    release(guard).await;
    let first = super::stage::done("its turn", secs(5), waiters.remove(0)).await.expect("no panic");
    let first = first.expect("its turn comes");
    let shown = status(&two, &name).await;
    assert_eq!(labels(&shown), ["third"], "one was granted the lock: {shown:?}");
    assert_eq!(shown.holders[0].label, "first", "{shown:?}");
    for _ in 0..LockStatus::SHOWN {
        waiters.push(tokio::spawn(two.lock(&name).wait(secs(60)).into_future()));
    }
    queued(&one, &name, waiters.len(), secs(5)).await;
    let shown = status(&two, &name).await;
    assert_eq!((shown.waiting.len(), labels(&shown)[0]), (LockStatus::SHOWN, "third"), "{shown:?}");
    for waiter in waiters {
        waiter.abort();
    }
    release(first).await;
}

fn labels(status: &LockStatus) -> Vec<&str> {
    status.waiting.iter().map(|one| one.label.as_str()).collect()
}

/// The list of held locks has each of them, however it is held and whatever its name.
pub(super) async fn what_is_held_is_listed(stage: Stage) {
    let [one, two] = stage.clients().await;
    let promised = one.capabilities();
    let names = ["a", "b/c %41 ü", "{d}", " "].map(|name| stage.name(name));
    let mut guards = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let request = match index {
            1 if promised.promises(Requirement::Shared) => one.read(name),
            2 if promised.promises(Requirement::Permits) => one.permit(name, 3),
            _ => one.lock(name),
        };
        guards.push(request.await.expect("a free lock"));
    }
    let listed = two.backend().names().await;
    for guard in guards {
        release(guard).await;
    }
    let listed = match listed {
        // A backend may be unable to list, and says so.
        Err(error) if error.kind() == ErrorKind::Unsupported => return,
        listed => listed.expect("a list"),
    };
    for name in &names {
        assert!(listed.contains(name), "{name:?} is held, and not among {listed:?}");
    }
    // The server may list released locks for a while. They are not shown as held.
    let held = two.held().await.expect("a list");
    assert!(!held.iter().any(|status| names.contains(&status.name)), "{held:?}");
}

/// How long a lock has been held does not start again with each renewal, and the time left does.
pub(super) async fn renewals_show_in_the_time_left_only(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("renewed");
    let ttl = ttl_of(&one, KEPT);
    let guard = one.lock(&name).ttl(ttl).await.expect("a free lock");
    sleep(ttl * 2).await;
    let held = status(&two, &name).await;
    let [holder] = &held.holders[..] else { panic!("one holder: {held:?}") };
    assert!(holder.held_for + millis(50) >= ttl * 2, "{holder:?}");
    assert!(!holder.ttl_left.is_zero() && holder.ttl_left <= ttl, "{holder:?}");
    release(guard).await;
}

/// A lease that ran out holds nothing, even if nobody has asked for the lock since.
pub(super) async fn a_lease_that_ran_out_is_not_shown_as_held(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("over");
    let ttl = ttl_of(&one, 200);
    let claim = claim(&name, Mode::Exclusive, ttl, Wait::No);
    one.backend().acquire(&claim).await.expect("an answer").expect("a free lock");
    sleep(ttl + millis(50)).await;
    let ended = now();
    loop {
        let over = status(&two, &name).await;
        if !over.is_held() {
            break;
        }
        assert_within(ended, EXPIRY, || format!("still shown after its end: {over:?}"));
        pause(20).await;
    }
    assert_eq!(two.force_release(&name).await.expect("an answer"), 0, "nobody holds it");
}

/// The operator's release says how many it freed, and the lock is free then.
pub(super) async fn a_forced_release_counts_the_holders(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("forced");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 0, "never used");
    let guard = one.lock(&name).await.expect("a free lock");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1, "held by one");
    assert!(!status(&two, &name).await.is_held());
    assert_eq!(two.force_release(&name).await.expect("an answer"), 0, "freed a moment ago");
    // The server knows it, also where the holder has not learned of it yet.
    let again = one.lock(&name).try_now().await.expect("an answer");
    release(again.expect("the server says that it is free")).await;
    drop(guard);
    // One who waits gets what the operator frees.
    let guard = one.lock(&name).wait(secs(5)).await.expect("a free lock");
    let waiter = tokio::spawn(two.lock(&name).wait(secs(20)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    assert_eq!(one.force_release(&name).await.expect("an answer"), 1, "held by one");
    let next = super::stage::done("the waiter's turn", secs(5), waiter).await.expect("no panic");
    release(next.expect("its turn comes")).await;
    drop(guard);
}

/// All readers are counted.
pub(super) async fn a_forced_release_frees_all_readers(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("readers");
    let mut readers = Vec::new();
    for locks in [&one, &two, &one] {
        readers.push(locks.read(&name).wait(secs(5)).await.expect("readers meet"));
    }
    let shown = status(&two, &name).await;
    let mut tokens: Vec<_> = shown.holders.iter().map(|holder| holder.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, readers.iter().map(lockwell_core::LockGuard::token).collect::<Vec<_>>(), "{shown:?}");
    assert!(shown.holders.iter().all(|holder| holder.mode == Mode::Shared), "{shown:?}");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 3, "three readers were freed");
    let writer = one.write(&name).try_now().await.expect("an answer").expect("a freed lock is free");
    release(writer).await;
}
