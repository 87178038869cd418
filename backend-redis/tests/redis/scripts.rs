//! Scripts that the server forgets, and calls of which one item fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, LeaseState, Locks};
use testbed::{Durability, Redis};

use crate::asking::queued;
use crate::redlock::nodes;
use crate::servers::{client, in_memory, on_disk, redis, redis_with, redlock_url, tell};

/// All that can be done with a lock, with a flush before each step.
async fn everything(one: &Locks, two: &Locks, flush: impl Fn()) {
    for _ in 0..3 {
        flush();
        let guard = one.lock("a").ttl(Duration::from_millis(2400)).await.expect("a free lock");
        flush();
        assert!(two.lock("a").try_now().await.expect("an answer").is_none());
        flush();
        let waiting = tokio::spawn(two.lock("a").into_future());
        queued(one, "a", 1).await;
        flush();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(guard.lease_state(), LeaseState::Held);
        flush();
        assert!(two.inspect("a").await.expect("an answer").is_held());
        flush();
        guard.release().await.expect("held");
        let guard = waiting.await.expect("no panic").expect("its turn");
        flush();
        assert_eq!(one.force_release("a").await.expect("an answer"), 1);
        flush();
        assert_eq!(guard.release().await.expect_err("taken").kind(), ErrorKind::Lost);
        flush();
        let writer = one.write("a").ttl(Duration::from_millis(2400)).await.expect("a free lock");
        flush();
        let first = writer.downgrade().await.expect("held");
        flush();
        let second = two.read("a").await.expect("readers meet");
        flush();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(first.lease_state(), LeaseState::Held);
        flush();
        first.release().await.expect("held");
        flush();
        second.release().await.expect("held");
    }
    assert_eq!((one.stats().renewal_failures, two.stats().renewal_failures), (0, 0));
}

#[tokio::test]
async fn a_flush_of_the_scripts_between_all_calls_is_not_noticed() {
    let Some(server) = redis().await else { return };
    let (one, two) = (client(&server.url()).await, client(&server.url()).await);
    everything(&one, &two, || drop(tell(&server, &["SCRIPT", "FLUSH"]))).await;
}

#[tokio::test]
async fn a_flush_of_the_scripts_at_all_nodes_is_not_noticed() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let url = redlock_url(&nodes);
    let (one, two) = (client(&url).await, client(&url).await);
    let flush = || nodes.iter().for_each(|node| drop(tell(node, &["SCRIPT", "FLUSH"])));
    everything(&one, &two, flush).await;
}

/// Many claims for few names. Says how many there were.
async fn storm(locks: &Locks, over: &Arc<AtomicBool>) -> u64 {
    let names: Arc<Vec<AtomicBool>> = Arc::new((0..8).map(|_| AtomicBool::new(false)).collect());
    let turns = Arc::new(AtomicU64::new(0));
    let tasks = (0..64).map(|task| {
        let (locks, over) = (locks.clone(), Arc::clone(over));
        let (names, turns) = (Arc::clone(&names), Arc::clone(&turns));
        tokio::spawn(async move {
            let at = task % names.len();
            while !over.load(Ordering::Relaxed) {
                let guard = locks.lock(format!("name {at}")).await.expect("its turn comes");
                assert!(!names[at].swap(true, Ordering::AcqRel), "two holders");
                tokio::task::yield_now().await;
                names[at].store(false, Ordering::Release);
                guard.release().await.expect("held");
                turns.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no claim fails");
    }
    turns.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushes_amid_many_claims_are_not_noticed() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let over = Arc::new(AtomicBool::new(false));
    let flushing = tokio::task::spawn_blocking({
        let (server, over) = (server.clone(), Arc::clone(&over));
        move || {
            for _ in 0..300 {
                tell(&server, &["SCRIPT", "FLUSH"]);
                std::thread::sleep(Duration::from_millis(3));
            }
            over.store(true, Ordering::Relaxed);
        }
    });
    let turns = storm(&locks, &over).await;
    flushing.await.expect("no panic");
    println!("{turns} claims amid 300 flushes");
    assert!(turns >= 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_amid_many_claims_are_not_noticed() {
    let Some(server) = redis_with(&in_memory().durability(Durability::OsCache)).await else { return };
    let locks = client(&format!("{}?timeout=20s", server.url())).await;
    let over = Arc::new(AtomicBool::new(false));
    let restarting = tokio::spawn({
        let (server, over) = (server.clone(), Arc::clone(&over));
        async move {
            for violent in [false, true, false] {
                tokio::time::sleep(Duration::from_millis(300)).await;
                if violent { server.kill() } else { server.stop().await }.expect("it ends");
                server.restart().await.expect("it starts again");
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            over.store(true, Ordering::Relaxed);
        }
    });
    let turns = storm(&locks, &over).await;
    restarting.await.expect("no panic");
    println!("{turns} claims amid three restarts");
    assert!(turns >= 64);
}

/// Puts another program's data where the lock is.
fn spoil(server: &Redis, name: &str) {
    let key = format!("lockwell:{name}");
    tell(server, &["DEL", &key]);
    tell(server, &["HSET", &key, "field", "value"]);
}

#[tokio::test]
async fn one_bad_key_fails_one_claim_of_a_call() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    for bad in [0, 17, 63] {
        spoil(&server, &format!("name {bad}"));
        server.pause().expect("it runs");
        let meeting = tokio::spawn(join_all((0..64).map(|n| locks.lock(format!("name {n}")).into_future())));
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.resume().expect("it runs");
        let mut guards = Vec::new();
        for (n, outcome) in meeting.await.expect("no panic").into_iter().enumerate() {
            match outcome {
                Ok(guard) => guards.push(guard),
                Err(error) => {
                    assert_eq!((n, error.kind()), (bad, ErrorKind::KindClash), "{error:#}");
                }
            }
        }
        assert_eq!(guards.len(), 63);
        // Of the releases that meet in a call, one meets a bad key, too.
        tell(&server, &["DEL", &format!("lockwell:name {bad}")]);
        spoil(&server, "name 40");
        let releases: Vec<_> = join_all(guards.into_iter().map(lockwell_core::LockGuard::release)).await;
        assert_eq!(releases.into_iter().filter(Result::is_err).count(), 1);
        tell(&server, &["DEL", "lockwell:name 40"]);
    }
}

#[tokio::test]
async fn one_bad_key_fails_one_renewal_of_a_call() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..64 {
        let guard = locks.lock(format!("name {n}")).ttl(Duration::from_secs(6)).await;
        guards.push(guard.expect("a free lock"));
    }
    spoil(&server, "name 17");
    tokio::time::sleep(Duration::from_secs(8)).await;
    for (n, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_held(), n != 17, "{n}: {guard:?}");
    }
}
