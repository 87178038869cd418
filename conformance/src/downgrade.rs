//! A writer that becomes a reader.

use super::stage::{KEPT, Stage, claim, done, free_by, millis, pause, queued, release, secs, ttl_of, within};
use super::time::{sleep, timeout};
use lockwell_core::{ErrorKind, Mode, Requirement};

/// Readers are granted the lock, writers are not, and the hold is the same one all the time.
pub(super) async fn a_writer_becomes_a_reader_without_a_gap(stage: Stage) {
    let [one, two, three] = stage.clients().await;
    let name = stage.name("book");
    let writer = one.write(&name).await.expect("a free lock");
    let (token, view) = (writer.token(), writer.handle());
    let reading = tokio::spawn(two.read(&name).wait(secs(20)).into_future());
    queued(&three, &name, 1, secs(5)).await;
    let next = tokio::spawn(three.write(&name).wait(secs(20)).into_future());
    queued(&two, &name, 2, secs(5)).await;
    let reader = writer.downgrade().await.expect("a writer becomes a reader");
    assert_eq!((reader.token(), reader.mode()), (token, Mode::Shared), "the hold is the same one");
    assert!(reader.is_held() && !view.is_held(), "the view was one of a writer");
    let other = done("a reader's turn", secs(5), reading).await.expect("no panic").expect("its turn comes");
    assert!(
        other.token() > token || !one.capabilities().promises(Requirement::Fencing),
        "{} after {token}",
        other.token()
    );
    pause(100).await;
    assert!(!next.is_finished(), "a writer beside two readers");
    let again = reader.downgrade().await.expect("a reader stays what it is");
    assert_eq!(again.token(), token);
    release(other).await;
    pause(100).await;
    assert!(!next.is_finished(), "a writer beside the one who was a writer");
    release(again).await;
    let next =
        done("the next writer's turn", secs(5), next).await.expect("no panic").expect("its turn comes");
    assert!(next.token() > token || !one.capabilities().promises(Requirement::Fencing));
    release(next).await;
}

/// What was downgraded is renewed, shown and released like any reader.
pub(super) async fn a_downgraded_lock_is_kept_and_shown(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("book");
    let ttl = ttl_of(&one, KEPT);
    let writer = one.write(&name).ttl(ttl).await.expect("a free lock");
    let reader = writer.downgrade().await.expect("a writer becomes a reader");
    sleep(ttl * 3).await;
    assert!(reader.is_held(), "{reader:?}");
    let status = two.inspect(&name).await.expect("an answer");
    let modes: Vec<_> = status.holders.iter().map(|holder| (holder.mode, holder.token)).collect();
    assert_eq!(modes, [(Mode::Shared, reader.token())], "{status:?}");
    assert!(two.write(&name).try_now().await.expect("an answer").is_none(), "a writer beside a reader");
    let other = two.read(&name).try_now().await.expect("an answer").expect("readers meet");
    release(other).await;
    drop(reader);
    let (guard, _) = free_by(&two, &name, secs(2), "after the downgraded").await;
    release(guard).await;
}

/// A downgrade that is dropped half-way leaves nothing behind.
pub(super) async fn a_downgrade_can_be_dropped_anywhere(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("book");
    for delay in [0, 0, 1, 2, 5] {
        let writer = one.write(&name).wait(secs(5)).await.expect("its turn comes");
        drop(timeout(millis(delay), writer.downgrade()).await);
        let (guard, _) = free_by(&two, &name, secs(3), "after a dropped downgrade").await;
        release(guard).await;
    }
}

/// What was lost is not downgraded, and a permit is not a writer.
pub(super) async fn a_downgrade_of_what_is_not_held_is_an_error(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("book");
    let writer = one.write(&name).await.expect("a free lock");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let error = writer.downgrade().await.expect_err("it was taken away");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    let (guard, _) = free_by(&two, &name, secs(2), "after a failed downgrade").await;
    release(guard).await;
    // The same at the backend itself, which may not look at the client's lease first, and with a successor.
    let late = claim(&name, Mode::Exclusive, ttl_of(&one, 10_000), within(secs(5)));
    let grant = one.backend().acquire(&late).await.expect("an answer").expect("a free lock");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    let next = two.write(&name).wait(secs(5)).await.expect("a free lock");
    let error = one.backend().downgrade(&grant).await.expect_err("another has it");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    let reader = one.read(&name).try_now().await.expect("an answer");
    assert!(reader.is_none(), "a late downgrade made a reader of the successor");
    release(next).await;
}

/// A permit is not a writer. It stays what it is.
pub(super) async fn a_permit_that_cannot_be_downgraded_stays(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("permit");
    let permit = one.permit(&name, 1).await.expect("a free permit");
    let token = permit.token();
    let (error, left) = permit.downgrade().await.expect_err("not a writer").into_parts();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    let permit = left.expect("the permit");
    assert!(permit.is_held() && permit.token() == token);
    assert!(two.permit(&name, 1).try_now().await.expect("an answer").is_none(), "it was released");
    release(permit).await;
}
