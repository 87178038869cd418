//! Owners who take their own locks again.

use super::stage::{KEPT, Stage, done, free_by, holder, millis, pause, queued, secs, ttl_of};
use lockwell_core::{ErrorKind, Mode, Requirement};

/// Taken again it is the same lock, and free when the last guard goes.
pub(super) async fn an_owner_takes_its_lock_again(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("again");
    let (owner, other) = (one.owner(), one.owner());
    let outer = owner.lock(&name).await.expect("a free lock");
    let inner = owner.clone().lock(&name).wait(millis(0)).await.expect("it is its own");
    let third = owner.write(&name).try_now().await.expect("an answer").expect("it is its own");
    assert_eq!((inner.token(), third.token()), (outer.token(), outer.token()));
    assert_eq!((outer.depth(), third.mode()), (3, Mode::Exclusive));
    assert!(other.lock(&name).try_now().await.expect("an answer").is_none(), "another owner of this process");
    assert!(one.lock(&name).try_now().await.expect("an answer").is_none(), "nobody of this process");
    assert!(two.lock(&name).try_now().await.expect("an answer").is_none(), "another process");
    drop(outer);
    third.release().await.expect("it is held");
    pause(50).await;
    assert_eq!(holder(&two, &name).await, Some(inner.token()), "the last guard keeps the lock");
    let waiting = tokio::spawn(other.lock(&name).wait(secs(20)).into_future());
    queued(&two, &name, 1, secs(5)).await;
    let token = inner.token();
    inner.release().await.expect("it is held");
    let next = done("the other owner's turn", secs(5), waiting).await.expect("no panic").expect("its turn");
    assert!(next.token() > token || !one.capabilities().promises(Requirement::Fencing));
    drop(next);
    let (guard, _) = free_by(&two, &name, secs(2), "after the last guard").await;
    drop(guard);
}

/// Tasks of one owner that ask at the same time share one claim.
pub(super) async fn tasks_of_an_owner_share_its_lock(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("again");
    let owner = one.owner();
    let held = two.lock(&name).await.expect("a free lock");
    let waiting = || tokio::spawn(owner.lock(&name).wait(secs(20)).into_future());
    // The task whose claim is in the queue is the one that leaves.
    let asks = waiting();
    queued(&two, &name, 1, secs(5)).await;
    let tasks: Vec<_> = (0..4).map(|_| waiting()).collect();
    let hasty = owner.lock(&name).wait(millis(50)).await.expect_err("it is held by another");
    assert_eq!(hasty.kind(), ErrorKind::TimedOut, "{hasty:#}");
    asks.abort();
    super::stage::release(held).await;
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(
            done("a turn of the owner's tasks", secs(5), task)
                .await
                .expect("no panic")
                .expect("its turn comes"),
        );
    }
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()), "{guards:?}");
    drop(guards);
    let (guard, _) = free_by(&two, &name, secs(2), "after the last guard of the owner's tasks").await;
    drop(guard);
}

/// What was lost is not held again just because a guard of it is still there.
pub(super) async fn an_owner_learns_of_its_loss(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("again");
    let owner = one.owner();
    let ttl = ttl_of(&one, KEPT);
    let guard = owner.lock(&name).ttl(ttl).await.expect("a free lock");
    assert_eq!(two.force_release(&name).await.expect("an answer"), 1);
    done("the news", ttl + secs(3), guard.lost()).await;
    let error = owner.lock(&name).wait(secs(1)).await.expect_err("it was lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    drop(guard);
    let again = owner.lock(&name).wait(secs(5)).await.expect("it is free, and taken anew");
    assert_eq!(again.depth(), 1);
    again.release().await.expect("it is held");
}

/// A reader does not become a writer, and the error says why.
pub(super) async fn an_upgrade_is_refused(stage: Stage) {
    let [one, two] = stage.clients().await;
    let name = stage.name("again");
    let owner = one.owner();
    let reader = owner.read(&name).await.expect("a free lock");
    let same = owner.read(&name).await.expect("it is its own");
    assert_eq!(same.token(), reader.token());
    let error = owner.write(&name).wait(secs(5)).await.expect_err("an upgrade");
    assert_eq!(error.kind(), ErrorKind::WouldDeadlock, "{error:#}");
    assert!(error.to_string().contains("reader"), "{error:#}");
    assert!(reader.is_held());
    drop((reader, same));
    let writer = owner.write(&name).wait(secs(5)).await.expect("the readers have gone");
    let reading = owner.read(&name).await.expect("a writer may read");
    assert_eq!((reading.token(), reading.mode()), (writer.token(), Mode::Exclusive));
    drop((writer, reading));
    let (guard, _) = free_by(&two, &name, secs(2), "after the readers").await;
    drop(guard);
}
