//! Readers, writers and semaphores.

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::network::is_honest;
use super::stage::{
    EXPIRY, Stage, assert_took, assert_within, claim, done, free_by, millis, pause, queued, release, secs,
    status, ttl_of, within,
};
use super::time::{clock, now};
use crate::Way;
use lockwell_core::{ErrorKind, LockGuard, LockName, Locks, Mode, Requirement};

async fn is_free_to_read(locks: &Locks, name: &LockName) -> bool {
    locks.read(name).try_now().await.expect("an answer").is_some()
}

/// Readers share the lock; a writer holds it alone.
pub(super) async fn readers_meet_and_writers_are_alone(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("book");
    let first = one.read(&name).await.expect("a free lock");
    let second = two.read(&name).try_now().await.expect("an answer").expect("readers meet");
    let third = two.read(&name).wait(secs(5)).await.expect("readers meet");
    assert!(one.write(&name).try_now().await.expect("an answer").is_none(), "a writer among readers");
    let error = two.write(&name).wait(super::stage::millis(100)).await.expect_err("readers are there");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
    release(first).await;
    release(second).await;
    assert!(one.write(&name).try_now().await.expect("an answer").is_none(), "a reader is left");
    let writer = tokio::spawn(one.write(&name).wait(secs(20)).into_future());
    queued(&two, &name, 1, secs(5)).await;
    release(third).await;
    let writer = done("the writer's turn", secs(5), writer).await.expect("no panic").expect("its turn comes");
    assert!(!is_free_to_read(&two, &name).await, "a reader beside a writer");
    assert!(!is_free_to_read(&one, &name).await, "a reader beside a writer, of the same client");
    assert!(two.lock(&name).try_now().await.expect("an answer").is_none(), "two writers");
    // All readers that wait get the lock together.
    let readers: Vec<_> = [&one, &two, &two]
        .into_iter()
        .map(|locks| tokio::spawn(locks.read(&name).wait(secs(20)).into_future()))
        .collect();
    queued(&one, &name, 3, secs(5)).await;
    release(writer).await;
    let mut together = Vec::new();
    for reader in readers {
        let reader = done("a reader's turn", secs(5), reader).await.expect("no panic");
        together.push(reader.expect("its turn comes"));
    }
    for reader in together {
        release(reader).await;
    }
}

/// Readers who keep coming do not keep a writer out.
pub(super) async fn a_writer_is_not_starved_by_readers(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("book");
    let held = one.read(&name).await.expect("a free lock");
    let writer = tokio::spawn({
        let request = two.write(&name).wait(secs(20));
        async move {
            let guard = request.await.expect("its turn comes");
            pause(30).await;
            let token = guard.token();
            release(guard).await;
            token
        }
    });
    queued(&one, &name, 1, secs(5)).await;
    assert!(!is_free_to_read(&three, &name).await, "a reader overtook a waiting writer");
    let late = tokio::spawn(three.read(&name).wait(secs(20)).into_future());
    queued(&one, &name, 2, secs(5)).await;
    pause(100).await;
    assert!(!late.is_finished(), "a reader overtook a waiting writer");
    release(held).await;
    let written = done("the writer", secs(5), writer).await.expect("no panic");
    let late = done("the late reader", secs(5), late).await.expect("no panic").expect("its turn comes");
    assert!(
        late.token() > written || !one.capabilities().promises(Requirement::Fencing),
        "{} after {written}",
        late.token()
    );
    release(late).await;
}

/// A writer whose wait ended does not delay the readers behind it.
pub(super) async fn readers_move_up_when_a_writer_leaves(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("book");
    let held = one.read(&name).await.expect("a free lock");
    let writer = tokio::spawn(two.write(&name).wait(secs(20)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    let reader = tokio::spawn(three.read(&name).wait(secs(20)).into_future());
    queued(&one, &name, 2, secs(5)).await;
    writer.abort();
    let reader = done("the reader's turn", secs(5), reader).await.expect("no panic").expect("its turn comes");
    assert!(held.is_held());
    release(reader).await;
    release(held).await;
}

/// Each reader has a lease of its own: when that of one ends, the others stay, and when they have left, the
/// lock is free.
pub(super) async fn a_dead_reader_leaves_the_others(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("book");
    let alive = one.read(&name).ttl(ttl_of(&one, 30_000)).await.expect("a free lock");
    let ttl = ttl_of(&one, 300);
    let dead = claim(&name, Mode::Shared, ttl, within(secs(1)));
    one.backend().acquire(&dead).await.expect("an answer").expect("readers meet");
    let began = now();
    let left = loop {
        let shown = status(&two, &name).await;
        if shown.holders.len() < 2 {
            break shown;
        }
        assert_within(began, ttl + millis(50) + EXPIRY, || format!("the dead one is still shown: {shown:?}"));
        pause(20).await;
    };
    assert!(alive.is_held(), "{:?}", alive.lease_state());
    let tokens: Vec<_> = left.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [alive.token()], "the lease of another reader ended: {left:?}");
    assert!(two.write(&name).try_now().await.expect("an answer").is_none(), "a writer beside a reader");
    release(alive).await;
    let (writer, _) = free_by(&two, &name, secs(2), "after the last reader, and one that died").await;
    release(writer).await;
}

/// A semaphore has as many permits as it says, whoever takes them.
pub(super) async fn permits_are_counted(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("slots");
    let first = one.permit(&name, 3).await.expect("a free permit");
    let second = two.permit(&name, 3).try_now().await.expect("an answer").expect("a free permit");
    let third = one.permit(&name, 3).wait(secs(5)).await.expect("a free permit");
    assert!(two.permit(&name, 3).try_now().await.expect("an answer").is_none(), "a fourth permit of 3");
    let waiting = tokio::spawn(two.permit(&name, 3).wait(secs(20)).into_future());
    queued(&one, &name, 1, secs(5)).await;
    release(second).await;
    let fourth = done("the turn of the fourth", secs(5), waiting).await.expect("no panic");
    let fourth = fourth.expect("its turn comes");
    assert!(one.permit(&name, 3).try_now().await.expect("an answer").is_none(), "a fourth permit of 3");
    assert_eq!(two.inspect(&name).await.expect("an answer").holders.len(), 3);
    drop(first);
    let (began, limit) = (now(), secs(2));
    let fifth = two.permit(&name, 3).wait(limit).await.expect("a dropped permit is free");
    assert_within(began, limit, || "a dropped permit is free".to_owned());
    for guard in [third, fourth, fifth] {
        release(guard).await;
    }
}

/// The permit of a dead holder is free again; the other permits stay held.
pub(super) async fn a_permit_of_a_dead_holder_comes_back(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("slots");
    let ttl = ttl_of(&one, 300);
    let alive = one.permit(&name, 2).await.expect("a free permit");
    let dead = claim(&name, alive.mode(), ttl, within(secs(1)));
    one.backend().acquire(&dead).await.expect("an answer").expect("a free permit");
    let began = now();
    let next = two.permit(&name, 2).wait(ttl + secs(5)).await.expect("the lease of the dead runs out");
    let took = now().since(began);
    assert_took(took, began, ttl + secs(2), || format!("a lease of {ttl:?} was followed by the next"));
    assert!(alive.is_held());
    assert!(one.permit(&name, 2).try_now().await.expect("an answer").is_none(), "a third permit of 2");
    release(next).await;
    release(alive).await;
}

/// To use one name as two kinds of lock is an error that names both kinds.
pub(super) async fn a_clash_of_kinds_is_an_error(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("clash");
    let guard = one.permit(&name, 2).await.expect("a free permit");
    for answer in [
        two.permit(&name, 3).try_now().await,
        two.permit(&name, 3).wait(secs(5)).await.map(Some),
        two.lock(&name).try_now().await,
        two.lock(&name).wait(secs(5)).await.map(Some),
    ] {
        let error = answer.expect_err("the name is in use as a semaphore with another limit");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
        let text = error.to_string();
        let asked = if text.contains("exclusive") { "exclusive" } else { "1 of 3" };
        assert!(text.contains("1 of 2") && text.contains(asked), "both ways of use are named: {text}");
    }
    let shared = one.capabilities().promises(Requirement::Shared);
    if shared {
        for answer in [two.read(&name).try_now().await, two.read(&name).wait(secs(5)).await.map(Some)] {
            let error = answer.expect_err("the name is in use as a semaphore");
            assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
        }
    }
    queued(&one, &name, 0, secs(2)).await;
    release(guard).await;
    if shared {
        let reader = one.read(&name).await.expect("an idle name is free for all kinds");
        let error = two.permit(&name, 2).try_now().await.expect_err("the name is in use by readers");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
        release(reader).await;
    }
    let guard =
        one.lock(&name).try_now().await.expect("an answer").expect("an idle name is free for all kinds");
    let error = two.permit(&name, 2).try_now().await.expect_err("the name is in use as a mutex");
    assert_eq!(error.kind(), ErrorKind::KindClash, "{error:#}");
    release(guard).await;
    let (guard, _) = free_by(&two, &name, secs(2), "after all clashes").await;
    assert_eq!(guard.mode(), Mode::Exclusive);
    release(guard).await;
}

/// The answer to a claim of another kind is lost, so its client does not know that it was refused. When the
/// kind that was in use has left, that claim must not hold the lock beside a newer one of the first kind.
pub(super) async fn kinds_do_not_meet_after_a_lost_answer(stage: Stage) {
    let link = stage.link().await;
    let [one, two] = stage.clients().await;
    let far = link.client().await.expect("a client behind the network");
    let name = stage.name("clash");
    release(far.lock(&name).await.expect("a free lock")).await;
    let first = one.permit(&name, 2).await.expect("a free permit");
    link.blackhole(Way::ToClient);
    let other = tokio::spawn(far.lock(&name).wait(secs(20)).into_future());
    pause(500).await;
    let second = tokio::spawn(two.permit(&name, 2).wait(secs(20)).into_future());
    pause(500).await;
    release(first).await;
    link.heal();
    // Whoever gets the lock first keeps it for a while, in which the other one may wait or fail, but not get
    // it.
    let mut claims = FuturesUnordered::from_iter([other, second]);
    let mut kept: Option<LockGuard> = None;
    let began = now();
    while !claims.is_empty() {
        let wait = secs(if kept.is_some() { 4 } else { 20 });
        match clock().timeout(wait, claims.next()).await {
            Some(Some(answer)) => match answer.expect("no panic") {
                Ok(guard) => {
                    let meet = kept.as_ref().is_some_and(LockGuard::is_held) && guard.is_held();
                    assert!(!meet, "a lock of one kind is held beside {:?}: {kept:?}", guard.mode());
                    kept = Some(guard);
                }
                Err(error) => {
                    assert!(is_honest(&error) || error.kind() == ErrorKind::KindClash, "{error:#}");
                }
            },
            _ => match kept.take() {
                Some(guard) => release(guard).await,
                None => assert_within(began, secs(25), || "nobody gets the lock".to_owned()),
            },
        }
    }
    if let Some(guard) = kept {
        release(guard).await;
    }
    let (guard, _) = free_by(&two, &name, secs(30), "after claims of two kinds").await;
    release(guard).await;
}
