//! Requests that nobody polls, or waits for, hold nothing for long.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use lockwell_core::{ErrorKind, LockGuard, Locks, Result};

use crate::servers::{client, hold, options, queued, secs, single};

/// What keeps others from the lock is given up after 30 s, or after the ttl, which is shorter here.
const UNTIL_GIVEN_UP: Duration = Duration::from_secs(40);

/// Polls a request until the first of its requests is carried out, and not again.
async fn poll_until_held<F: Future + Unpin>(request: &mut F, others: &Locks, name: &str) {
    for _ in 0..20 {
        assert!((&mut *request).now_or_never().is_none(), "it has its answer already");
        for _ in 0..50 {
            if others.inspect(name).await.expect("an answer").is_held() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    panic!("its node is not made");
}

/// The request is polled again. It has lost its place, and gets another one, behind this guard.
async fn goes_on(
    kept: impl Future<Output = Result<LockGuard>> + Send + 'static,
    guard: LockGuard,
    others: &Locks,
    name: &str,
) {
    assert!(guard.is_held());
    let kept = tokio::spawn(kept);
    queued(others, name, 1).await;
    assert!(guard.is_held());
    let token = guard.token();
    guard.release().await.expect("held");
    let guard = kept.await.expect("no panic").expect("its turn comes");
    assert!(guard.token() > token);
    guard.release().await.expect("held");
}

/// The lock was free, so the node that the first poll makes holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_not_polled_gives_its_lock_up() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    // The session is open then.
    hold(&one, "other").await.release().await.expect("held");
    let mut kept = Box::pin(one.lock("kept").wait(secs(300)).into_future());
    poll_until_held(&mut kept, &two, "kept").await;
    let guard = two.lock("kept").wait(UNTIL_GIVEN_UP).await.expect("the other is given up");
    goes_on(kept, guard, &two, "kept").await;
}

/// A waiter becomes the first of the queue, and nobody polls it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_not_polled_gives_its_place_up() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let held = hold(&two, "kept").await;
    let mut kept = Box::pin(one.lock("kept").wait(secs(300)).into_future());
    // Its watches are set by then.
    assert!(tokio::time::timeout(secs(2), &mut kept).await.is_err(), "two hold the lock");
    queued(&two, "kept", 1).await;
    held.release().await.expect("held");
    let guard = two.lock("kept").wait(UNTIL_GIVEN_UP).await.expect("the other is given up");
    goes_on(kept, guard, &two, "kept").await;
}

/// A waiter that is polled keeps its place, however long it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_polled_keeps_its_place() {
    let Some(server) = single(&options()).await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    let held = hold(&two, "kept").await;
    let first = tokio::spawn(one.lock("kept").wait(secs(300)).into_future());
    queued(&two, "kept", 1).await;
    let second = tokio::spawn(two.lock("kept").wait(secs(300)).into_future());
    queued(&two, "kept", 2).await;
    tokio::time::sleep(UNTIL_GIVEN_UP).await;
    held.release().await.expect("held");
    let first = first.await.expect("no panic").expect("its turn comes");
    let token = first.token();
    first.release().await.expect("held");
    let second = second.await.expect("no panic").expect("its turn comes");
    assert!(second.token() > token, "they have changed places");
    second.release().await.expect("held");
}

/// A request waits in the client while the server is away, for longer than its release is repeated. It is
/// carried out when the server is back, and the session goes on. Nobody waits for its lock any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_is_carried_out_late_holds_nothing() {
    let Some(server) = single(&options()).await else { return };
    let far = client(&server.url()).await;
    let request = || far.lock("late").ttl(secs(20)).lock_delay(secs(10));
    request().await.expect("a free lock").release().await.expect("held");
    server.kill().expect("killed");
    let error = request().wait(Duration::from_millis(500)).await.expect_err("no server");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    // The release is repeated for 35 seconds, and the session goes on for some seconds longer.
    tokio::time::sleep(secs(39)).await;
    server.restart().await.expect("started");
    let near = client(&server.url()).await;
    near.lock("late").wait(secs(20)).await.expect("nobody holds it").release().await.expect("held");
}
