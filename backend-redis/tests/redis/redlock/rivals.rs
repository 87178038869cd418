//! Clients that want the same lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::Locks;

use super::nodes;
use crate::servers::{client, keys, on_disk, redlock_url, until};

/// Takes and releases the lock again and again. Says how often.
async fn hammer(locks: Locks, taken: Arc<AtomicBool>, until: Instant) -> u32 {
    let mut turns = 0;
    while Instant::now() < until {
        let guard = locks.lock("a").await.expect("its turn comes");
        assert!(!taken.swap(true, Ordering::AcqRel), "two holders");
        tokio::time::sleep(Duration::from_millis(1)).await;
        taken.store(false, Ordering::Release);
        guard.release().await.expect("held");
        turns += 1;
    }
    turns
}

async fn rivals(count: usize) {
    let Some(nodes) = nodes(count, &on_disk()).await else { return };
    let url = redlock_url(&nodes);
    let taken = Arc::new(AtomicBool::new(false));
    let until_when = Instant::now() + Duration::from_secs(4);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let locks = client(&url).await;
        for _ in 0..2 {
            tasks.push(tokio::spawn(hammer(locks.clone(), Arc::clone(&taken), until_when)));
        }
    }
    let turns: Vec<_> = join_all(tasks).await.into_iter().map(|task| task.expect("no two holders")).collect();
    println!("{count} nodes, two tasks of two clients each, four seconds: {turns:?} turns");
    let (one, two) = (turns[0] + turns[1], turns[2] + turns[3]);
    assert!(one + two >= 40, "{turns:?}");
    assert!(one.min(two) * 8 >= one.max(two), "one client starves: {turns:?}");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_a_lock_at_three_nodes() {
    rivals(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_share_a_lock_at_five_nodes() {
    rivals(5).await;
}
