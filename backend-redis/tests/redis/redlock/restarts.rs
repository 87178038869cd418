//! Nodes that have forgotten locks have no vote until what they forgot is over.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockwell_core::{ErrorKind, Grant, Locks};
use testbed::{Direction, Proxy, Redis};

use super::{nodes, url_of};
use crate::asking::claim;
use crate::servers::{client, in_memory, keys, on_disk, redlock_url, tell, until};

/// The longest lease.
const LONGEST: Duration = Duration::from_secs(3);

/// Tries until the lock is granted.
async fn lock_at_last(locks: &Locks, name: &str) -> lockwell_core::LockGuard {
    let start = Instant::now();
    loop {
        let outcome = locks.lock(name).ttl(Duration::from_secs(1)).try_now().await;
        if let Ok(Some(guard)) = outcome {
            return guard;
        }
        assert!(start.elapsed() < Duration::from_secs(15), "never granted: {outcome:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn nodes_that_forget_have_no_vote_at_first() {
    let start = Instant::now();
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    let url = format!("{}?longest_ttl=10s", redlock_url(&nodes));
    let locks = client(&url).await;
    let outcome = locks.lock("a").try_now().await;
    if start.elapsed() < Duration::from_secs(9) {
        let error = outcome.expect_err("nobody votes yet");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        assert!(format!("{error:#}").contains("may have forgotten grants"), "{error:#}");
        until("the votes are given back", || nodes.iter().all(|node| keys(node).is_empty())).await;
    }
    let locks = client(&url.replace("10s", "1s")).await;
    lock_at_last(&locks, "a").await.release().await.expect("held");
    println!("the first lock {:?} after the start", start.elapsed());
    assert!(start.elapsed() >= Duration::from_secs(1));
}

/// Waits until each node has a vote: it writes every change, or has noted that it has its token counters.
async fn ready(locks: &Locks, nodes: &[Redis]) {
    let noted = |node| tell(node, &["EXISTS", "lockwell:\u{1f}token\u{1f}run"]).starts_with(":1");
    let remembers = |node| tell(node, &["CONFIG", "GET", "appendfsync"]).contains("always");
    let start = Instant::now();
    while !nodes.iter().all(|node| noted(node) || remembers(node)) {
        assert!(start.elapsed() < Duration::from_secs(20), "some node never votes");
        lock_at_last(locks, "warm").await.release().await.expect("held");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_client_that_comes_after_the_delay_can_lock_at_once() {
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    tokio::time::sleep(Duration::from_millis(2200)).await;
    let start = Instant::now();
    let locks = client(&format!("{}?longest_ttl=1s", redlock_url(&nodes))).await;
    let guard = lock_at_last(&locks, "a").await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    ready(&locks, &nodes).await;
    guard.release().await.expect("held");
}

/// A lock that is held at the first two of three nodes, and that nobody renews.
async fn held_at_two(nodes: &[Redis], options: &str) -> Grant {
    let proxy = Proxy::start(nodes[2].addr()).await.expect("a proxy");
    let url = url_of(&[nodes[0].addr(), nodes[1].addr(), proxy.addr()]);
    let locks = client(&format!("{url}?{options}")).await;
    ready(&locks, nodes).await;
    proxy.blackhole(Direction::Both);
    // A second's end is what a server that counts in whole seconds gets wrong.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").subsec_millis();
    tokio::time::sleep(Duration::from_millis((1750 - u64::from(now)) % 1000)).await;
    let grant = locks.backend().acquire(&claim("a", LONGEST)).await.expect("an answer");
    grant.expect("a majority of two")
}

/// A node that forgot the lock is back. Says when the first of the others got it.
async fn never_two(others: &[Locks], grant: &Grant) -> lockwell_core::LockGuard {
    let start = Instant::now();
    let mut tries = 0;
    loop {
        for locks in others {
            let outcome = locks.lock("a").ttl(LONGEST).try_now().await;
            if let Ok(Some(guard)) = outcome {
                println!("{tries} times refused; granted {:?} after the restart", start.elapsed());
                assert!(grant.deadline().has_passed(), "two hold it for {:?}", grant.deadline().remaining());
                assert!(guard.token() > grant.token(), "{} after {}", guard.token(), grant.token());
                return guard;
            }
            tries += 1;
            assert!(start.elapsed() < Duration::from_secs(15), "never granted again: {outcome:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_a_lock_does_not_give_it_to_another() {
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    let options = format!("longest_ttl={}s", LONGEST.as_secs());
    let url = format!("{}?{options}", redlock_url(&nodes));
    let knew_it = client(&url).await;
    let grant = held_at_two(&nodes, &options).await;
    lock_at_last(&knew_it, "another").await.release().await.expect("held");
    nodes[0].kill().expect("it runs");
    nodes[0].restart().await.expect("it starts again");
    assert!(!matches!(knew_it.lock("a").ttl(LONGEST).try_now().await, Ok(Some(_))), "two hold it");
    // The server counts a second by now.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let is_new = client(&url).await;
    never_two(&[knew_it, is_new], &grant).await.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_when_the_node_that_remembers_is_cut_off() {
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    let options = format!("longest_ttl={}s&node_timeout=100ms", LONGEST.as_secs());
    let proxy = Proxy::start(nodes[1].addr()).await.expect("a proxy");
    let url = url_of(&[nodes[0].addr(), proxy.addr(), nodes[2].addr()]);
    let other = client(&format!("{url}?{options}")).await;
    let grant = held_at_two(&nodes, &options).await;
    nodes[0].kill().expect("it runs");
    nodes[0].restart().await.expect("it starts again");
    proxy.blackhole(Direction::Both);
    other.lock("a").ttl(LONGEST).try_now().await.expect_err("one vote of three");
    while !grant.deadline().has_passed() {
        assert!(!matches!(other.lock("a").ttl(LONGEST).try_now().await, Ok(Some(_))), "two hold it");
    }
    // It has lost its token counters as well, and needs the others for them: so it is not the end of the grace
    // period that is waited for any more.
    let patient = other.lock("a").ttl(LONGEST).through_grace().try_now();
    let ended = tokio::time::timeout(Duration::from_secs(30), patient).await.expect("the period ends");
    let error = ended.expect_err("one vote of three");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    proxy.heal();
    never_two(&[other], &grant).await.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_writes_every_change_remembers_and_votes_at_once() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let options = "longest_ttl=1m";
    let url = format!("{}?{options}", redlock_url(&nodes));
    let knew_it = client(&url).await;
    let grant = held_at_two(&nodes, options).await;
    nodes[0].kill().expect("it runs");
    nodes[0].restart().await.expect("it starts again");
    let is_new = client(&url).await;
    assert!(is_new.lock("a").try_now().await.expect("an answer").is_none(), "the node remembers");
    // With one node down its vote is needed.
    nodes[2].kill().expect("it runs");
    for locks in [&knew_it, &is_new] {
        lock_at_last(locks, "another").await.release().await.expect("held");
    }
    nodes[2].restart().await.expect("it starts again");
    never_two(&[knew_it, is_new], &grant).await.release().await.expect("held");
}

/// A node that reads its file says that it has none. It must not lose its vote for the longest lease, which
/// is a minute here.
#[tokio::test]
async fn nodes_that_remember_vote_as_soon_as_they_have_loaded_their_files() {
    // For each key, in microseconds.
    let slow = on_disk().setting("key-load-delay", "100");
    let Some(nodes) = nodes(3, &slow).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    for number in 0..700 {
        locks.lock(format!("lock/{number}")).await.expect("a majority").release().await.expect("a majority");
    }
    for node in &nodes[..2] {
        node.kill().expect("it runs");
        let asking = async {
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                drop(locks.lock("asked").try_now().await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let (restarted, ()) = tokio::join!(node.restart(), asking);
        restarted.expect("it starts again");
    }
    let guard =
        locks.lock("a").wait(Duration::from_secs(20)).await.expect("two have restarted, and remember");
    guard.release().await.expect("a majority");
}
