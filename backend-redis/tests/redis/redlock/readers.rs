//! Readers and writers whose majorities meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, Locks, Mode};
use testbed::Redis;

use super::{ask_for_vote, nodes};
use crate::asking::claim_as;
use crate::servers::{backend, client, keys, on_disk, redlock_url, soon, tell, until};

async fn three() -> Option<Vec<Redis>> {
    nodes(3, &on_disk()).await
}

/// With a node that is down, a majority is what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_exclude_each_other_without_one_node() {
    let Some(nodes) = three().await else { return };
    let (one, two) = (client(&redlock_url(&nodes)).await, client(&redlock_url(&nodes)).await);
    nodes[0].kill().expect("it runs");
    let reader = one.read("a").wait(Duration::from_secs(10)).await.expect("a majority");
    let other = two.read("a").wait(Duration::from_secs(10)).await.expect("readers meet");
    assert!(other.token() > reader.token());
    assert!(two.write("a").try_now().await.expect("an answer").is_none());
    let waiting = tokio::spawn(two.write("a").into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    reader.release().await.expect("held");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "a reader is left");
    let token = other.token();
    other.release().await.expect("held");
    let writer = waiting.await.expect("no panic").expect("its turn");
    assert!(writer.token() > token);
    assert!(one.read("a").try_now().await.expect("an answer").is_none());
    writer.release().await.expect("held");
}

/// Reads without a pause until told to stop.
async fn reads(locks: Locks, over: Arc<AtomicBool>, writing: Arc<AtomicBool>, turns: Arc<AtomicU32>) {
    while !over.load(Ordering::Relaxed) {
        let guard = locks.read("a").wait(Duration::from_secs(30)).await.expect("its turn comes");
        assert!(!writing.load(Ordering::SeqCst), "a reader beside a writer");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!writing.load(Ordering::SeqCst), "a writer beside a reader");
        turns.fetch_add(1, Ordering::Relaxed);
        guard.release().await.expect("held");
    }
}

/// Readers who keep coming, each before the last has gone, do not keep a writer out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_readers_does_not_starve_a_writer() {
    let Some(nodes) = three().await else { return };
    let url = redlock_url(&nodes);
    let (over, writing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let turns = Arc::new(AtomicU32::new(0));
    let mut readers = Vec::new();
    for _ in 0..2 {
        let locks = client(&url).await;
        for _ in 0..4 {
            let reader = reads(locks.clone(), Arc::clone(&over), Arc::clone(&writing), Arc::clone(&turns));
            readers.push(tokio::spawn(reader));
        }
    }
    let writer = client(&url).await;
    let mut waits = Vec::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        let guard = writer.write("a").wait(Duration::from_secs(30)).await.expect("not starved");
        waits.push(start.elapsed());
        assert!(!writing.swap(true, Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(5)).await;
        writing.store(false, Ordering::SeqCst);
        guard.release().await.expect("held");
    }
    over.store(true, Ordering::Relaxed);
    for reader in join_all(readers).await {
        reader.expect("readers and writers exclude each other");
    }
    println!("a writer among 8 readers of 20 ms, who had {turns:?} turns, waited for {waits:?}");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

/// A node that the request for a downgrade does not reach keeps the lock as a writer's: it excludes writers,
/// and is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_needs_a_majority_only() {
    let Some(nodes) = three().await else { return };
    let (one, two) = (client(&redlock_url(&nodes)).await, client(&redlock_url(&nodes)).await);
    let writer = one.write("a").ttl(Duration::from_secs(30)).await.expect("a free lock");
    let value = || tell(&nodes[0], &["GET", "lockwell:a"]);
    until("the node has it", || value().contains(&writer.token().to_string())).await;
    // What is sent to it meanwhile is lost.
    nodes[0].pause().expect("it runs");
    let token = writer.token();
    let reader = writer.downgrade().await.expect("a majority");
    assert_eq!((reader.token(), reader.mode()), (token, Mode::Shared));
    let other = two.read("a").wait(Duration::from_secs(10)).await.expect("a majority lets it in");
    assert!(two.write("a").try_now().await.is_ok_and(|answer| answer.is_none()));
    other.release().await.expect("held");
    nodes[0].resume().expect("it runs");
    reader.release().await.expect("held");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

/// The same where the writer's lock stands at a node for good.
#[tokio::test]
async fn what_is_left_of_a_writer_is_renewed_and_released_by_the_reader() {
    let Some(nodes) = three().await else { return };
    let one = backend(&redlock_url(&nodes)).await.expect("a connection");
    let claim = claim_as(Mode::Exclusive, "a", Duration::from_secs(30));
    let grant = one.acquire(&claim).await.expect("an answer").expect("a free lock");
    until("all nodes have it", || nodes.iter().all(|node| keys(node) == ["lockwell:a"])).await;
    let value = tell(&nodes[0], &["GET", "lockwell:a"]);
    let value = value.lines().nth(1).expect("a value");
    let reader = one.downgrade(&grant).await.expect("held");
    until("all nodes have answered", || nodes.iter().all(|node| keys(node).len() == 3)).await;
    tell(&nodes[0], &["FLUSHALL"]);
    tell(&nodes[0], &["SET", "lockwell:a", value, "PX", "5000"]);
    let renewal = one.renew(std::slice::from_ref(&reader), soon()).await.remove(0);
    assert!(matches!(renewal, lockwell_core::Renewal::Renewed(_)), "{renewal:?}");
    until("it is extended", || crate::asking::life(&nodes[0], "lockwell:a") > 20_000).await;
    one.release(reader.claim()).await.expect("an answer");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
    let error = one.downgrade(&grant).await.expect_err("released");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
}

/// The model of Redlock finds that tokens do not rise otherwise
/// (`a_vote_of_an_earlier_round_is_too_old_for_a_reader`).
#[tokio::test]
async fn a_reader_gets_another_vote_in_its_next_round() {
    let Some(nodes) = three().await else { return };
    let vote = |owner: char, round: &str| {
        let owner = owner.to_string().repeat(32);
        ask_for_vote(&nodes[0], "a", &[&owner, "10000", "x", "1", "-1", "", "0", round, ""])
    };
    assert_eq!([vote('a', "1"), vote('a', "1")], [Some(1); 2], "asked again");
    assert_eq!([vote('b', "1"), vote('a', "1"), vote('a', "2"), vote('a', "2")], [2, 1, 3, 3].map(Some));
    assert_eq!([vote('a', "1"), vote('b', "2")], [None, Some(4)], "one that comes late gets no vote");
}
