//! Who waits for a permit, and for whom.

use std::time::Duration;

use lockwell_core::{LockGuard, Locks, Moment, Result};

use crate::frames::{Frames, GET_DATA, LIST};
use crate::servers::{client, options, queued, single};

const NAME: &str = "permits";

async fn permit(locks: Locks) -> Result<LockGuard> {
    locks.permit(NAME, 2).ttl(Duration::from_secs(30)).wait(Duration::from_secs(60)).await
}

/// Waits until one more request of this operation has come than before.
async fn one_more(frames: &Frames, operation: i32, before: usize) {
    let end = Moment::now().after(Duration::from_secs(30));
    while frames.count(operation) == before {
        assert!(!end.has_passed(), "no request");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A claim that came later may have seen an earlier one wait, and waits for it. So the earlier one says that
/// its turn has come, also if it has never had to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_seen_to_wait_says_that_it_does_not() {
    let Some(server) = single(&options()).await else { return };
    let (direct, near) = (client(&server.url()).await, Frames::start(server.addr()).await);
    let (far, seen) = (client(&near.url()).await, Frames::start(server.addr()).await);
    let later = client(&seen.url()).await;
    for locks in [&direct, &far, &later] {
        permit(locks.clone()).await.expect("a permit").release().await.expect("held");
    }
    let (one, two) = (permit(direct.clone()).await.expect("one"), permit(direct.clone()).await.expect("two"));
    // It has its place, and does not know yet which.
    let before = near.count(LIST);
    near.stop_before(Some(LIST));
    let third = tokio::spawn(permit(far));
    one_more(&near, LIST, before).await;
    queued(&direct, NAME, 1).await;
    // It waits for the one before it.
    let before = seen.count(GET_DATA);
    let fourth = tokio::spawn(permit(later));
    one_more(&seen, GET_DATA, before).await;
    one.release().await.expect("held");
    near.stop_before(None);
    let third = third.await.expect("no panic").expect("a permit is free");
    let freed = Moment::now();
    two.release().await.expect("held");
    let fourth = fourth.await.expect("no panic").expect("another is free");
    let took = Moment::now().since(freed);
    // Otherwise it looks by itself after five seconds at the earliest.
    assert!(took < Duration::from_secs(4), "it took {took:?}");
    third.release().await.expect("held");
    fourth.release().await.expect("held");
}
