//! Readers, writers and semaphores.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::network::is_honest;
use super::stage::{
    EXPIRY, Stage, assert_took, assert_within, claim, done, free_by, millis, pause, queued, release, secs,
    status, ttl_of, within,
};
use super::time::{clock, has_passed, now};
use crate::Way;
use lockwell_core::{ErrorKind, LockGuard, LockName, LockRequest, Locks, Mode, Requirement, Result};

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

/// A holder of one of two permits. The other holder is dead, and its lease lasts for so long.
async fn beside_a_dead_one(locks: &Locks, name: &LockName, ttl: Duration) -> LockGuard {
    let alive = locks.permit(name, 2).await.expect("a free permit");
    let dead = claim(name, alive.mode(), ttl, within(secs(1)));
    locks.backend().acquire(&dead).await.expect("an answer").expect("a free permit");
    alive
}

/// The permit of a dead holder is free again; the other permits stay held.
pub(super) async fn a_permit_of_a_dead_holder_comes_back(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("slots");
    let ttl = ttl_of(&one, 300);
    let alive = beside_a_dead_one(&one, &name, ttl).await;
    let began = now();
    let next = two.permit(&name, 2).wait(ttl + secs(5)).await.expect("the lease of the dead runs out");
    let took = now().since(began);
    assert_took(took, began, ttl + secs(2), || format!("a lease of {ttl:?} was followed by the next"));
    assert!(alive.is_held());
    assert!(one.permit(&name, 2).try_now().await.expect("an answer").is_none(), "a third permit of 2");
    release(next).await;
    release(alive).await;
}

/// A claim that does not wait is told that the name is in use as another kind of lock, and leaves nothing.
pub(super) async fn a_clash_of_kinds_is_an_error_without_a_wait(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("clash");
    let guard = one.permit(&name, 2).await.expect("a free permit");
    let shared = one.capabilities().promises(Requirement::Shared);
    for (request, asked) in [(two.permit(&name, 3), "limit 3"), (two.lock(&name), "exclusive")]
        .into_iter()
        .chain(shared.then(|| (two.read(&name), "shared")))
    {
        let error = request.try_now().await.expect_err("the name is in use as another semaphore");
        assert!(error.kind() == ErrorKind::KindClash && error.is_retryable(), "{error:#}");
        let text = error.to_string();
        assert!(text.contains("limit 2") && text.contains(asked), "both ways of use are named: {text}");
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

fn request(locks: &Locks, name: &LockName, mode: Mode) -> LockRequest {
    match mode {
        Mode::Permit { limit } => locks.permit(name, limit.get()),
        Mode::Shared => locks.read(name),
        _ => locks.lock(name),
    }
}

fn permits(limit: u32) -> Mode {
    Mode::Permit { limit: NonZeroU32::new(limit).expect("not zero") }
}

/// A claim of another kind waits like a writer among readers: nobody overtakes it, and when the old kind has
/// left, the new one has the name.
pub(super) async fn another_kind_waits_until_the_old_one_has_left(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let mut pairs = vec![
        (permits(2), permits(3)),
        (permits(3), permits(2)),
        (permits(2), Mode::Exclusive),
        (Mode::Exclusive, permits(2)),
    ];
    if one.capabilities().promises(Requirement::Shared) {
        pairs.extend([(Mode::Shared, permits(2)), (permits(2), Mode::Shared)]);
    }
    for (at, (old, new)) in pairs.into_iter().enumerate() {
        let name = stage.name(at);
        let what = format!("{new} after {old}");
        // A semaphore has a free permit left, and readers meet: a claim of the old kind could come in.
        let held = request(&one, &name, old).await.expect("a free lock");
        let waiting = tokio::spawn(request(&two, &name, new).wait(secs(20)).into_future());
        queued(&one, &name, 1, secs(5)).await;
        for locks in [&one, &three] {
            let answer =
                request(locks, &name, old).try_now().await.expect("it is of the kind of the holders");
            assert!(answer.is_none(), "{what}: the old kind overtook another one");
        }
        let late = tokio::spawn(request(&three, &name, old).wait(secs(20)).into_future());
        queued(&one, &name, 2, secs(5)).await;
        pause(100).await;
        assert!(!late.is_finished(), "{what}: the old kind overtook another one");
        assert!(!waiting.is_finished() && held.is_held(), "{what}: two kinds at once");
        release(held).await;
        let mut holders = vec![
            done(&format!("{what}: its turn"), secs(5), waiting)
                .await
                .expect("no panic")
                .expect("its turn comes"),
        ];
        let most = match new {
            Mode::Permit { limit } => usize::try_from(limit.get()).expect("a small number"),
            Mode::Shared => 2,
            _ => 1,
        };
        // The late one would keep others of the new kind out, so it leaves.
        assert!(!late.is_finished(), "{what}: two kinds at once");
        late.abort();
        queued(&one, &name, 0, secs(5)).await;
        while holders.len() < most {
            let more = request(&three, &name, new).try_now().await.expect("an answer");
            holders.push(more.unwrap_or_else(|| panic!("{what}: {} of {most} came in", holders.len())));
        }
        if new != Mode::Shared {
            let more = request(&three, &name, new).try_now().await.expect("an answer");
            assert!(more.is_none(), "{what}: one more than {most}");
        }
        let error = request(&one, &name, old).try_now().await.expect_err("the new kind holds the name");
        assert_eq!(error.kind(), ErrorKind::KindClash, "{what}: {error:#}");
        for guard in holders {
            assert!(guard.is_held(), "{what}");
            release(guard).await;
        }
    }
}

/// A claim of another kind that leaves does not keep those out that came after it.
pub(super) async fn the_old_kind_goes_on_when_another_one_leaves(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    for new in [permits(3), Mode::Exclusive] {
        let name = stage.name(new.name());
        let held = one.permit(&name, 2).await.expect("a free permit");
        let waiting = tokio::spawn(request(&two, &name, new).wait(secs(20)).into_future());
        queued(&one, &name, 1, secs(5)).await;
        let late = tokio::spawn(three.permit(&name, 2).wait(secs(20)).into_future());
        queued(&one, &name, 2, secs(5)).await;
        waiting.abort();
        let late = done("the turn of the old kind", secs(5), late).await.expect("no panic");
        let late = late.expect("its turn comes");
        assert!(held.is_held());
        release(late).await;
        release(held).await;
    }
}

/// One of the old kind dies, and another lives: the new kind waits for both.
pub(super) async fn another_kind_outwaits_a_dead_holder(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("slots");
    let ttl = ttl_of(&one, 300);
    let alive = beside_a_dead_one(&one, &name, ttl).await;
    let waiting = tokio::spawn(two.permit(&name, 3).wait(ttl + secs(20)).into_future());
    let (began, limit) = (now(), ttl + EXPIRY + secs(1));
    while status(&one, &name).await.holders.len() > 1 {
        assert_within(began, limit, || "the dead one is still shown".to_owned());
        pause(20).await;
    }
    assert!(!waiting.is_finished() && alive.is_held(), "another kind beside one that lives");
    release(alive).await;
    let next = done("the turn of another kind", secs(5), waiting).await.expect("no panic");
    release(next.expect("its turn comes")).await;
    // The last one dies.
    let last = claim(&name, permits(2), ttl, within(secs(1)));
    let grant = one.backend().acquire(&last).await.expect("an answer").expect("a free permit");
    let waiting = tokio::spawn(two.lock(&name).wait(ttl + secs(20)).into_future());
    let next = done("the turn after the dead", ttl + EXPIRY + secs(5), waiting).await.expect("no panic");
    let next = next.expect("its turn comes");
    assert!(
        has_passed(grant.deadline()),
        "granted beside another kind, {:?} early",
        grant.deadline().since(now())
    );
    release(next).await;
}

/// The answer to a claim of another kind is lost, so its client does not know that it waits, or was refused. When
/// the kind that was in use has left, that claim must not hold the lock beside a newer one of the first kind.
pub(super) async fn kinds_do_not_meet_after_a_lost_answer(stage: Stage) {
    let link = stage.link().await;
    let [one, two] = stage.clients().await;
    let far = link.client().await.expect("a client behind the network");
    for waits in [true, false] {
        let name = stage.name(format_args!("waits {waits}"));
        release(far.lock(&name).await.expect("a free lock")).await;
        let first = one.permit(&name, 2).await.expect("a free permit");
        link.blackhole(Way::ToClient);
        let other = tokio::spawn(ask(far.lock(&name), waits));
        pause(500).await;
        let second = tokio::spawn(ask(two.permit(&name, 2), true));
        pause(500).await;
        release(first).await;
        link.heal();
        // Whoever gets the lock first keeps it for a while, in which the other one may wait or fail, but not
        // get it.
        let mut claims = FuturesUnordered::from_iter([other, second]);
        let mut kept: Option<LockGuard> = None;
        let began = now();
        while !claims.is_empty() {
            let wait = secs(if kept.is_some() { 4 } else { 20 });
            match clock().timeout(wait, claims.next()).await {
                Some(Some(answer)) => match answer.expect("no panic") {
                    Ok(Some(guard)) => {
                        let meet = kept.as_ref().is_some_and(LockGuard::is_held) && guard.is_held();
                        assert!(!meet, "a lock of one kind is held beside {:?}: {kept:?}", guard.mode());
                        kept = Some(guard);
                    }
                    Ok(None) => (),
                    Err(error) => {
                        let is_clash = !waits && error.kind() == ErrorKind::KindClash;
                        assert!(is_honest(&error) || is_clash, "{error:#}");
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
}

async fn ask(request: LockRequest, waits: bool) -> Result<Option<LockGuard>> {
    if waits { request.wait(secs(20)).await.map(Some) } else { request.try_now().await }
}
