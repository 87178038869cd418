//! Locks that a node has lost are set again there, but never after their release.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Mode, Renewal};
use testbed::{Proxy, Redis};

use super::{nodes, url_of};
use crate::asking::claim_as;
use crate::servers::{backend, client, keys, on_disk, redlock_url, soon, tell, until};

#[tokio::test]
async fn a_renewal_sets_the_lock_again_where_it_was_lost() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(6)).await.expect("a free lock");
    for node in &nodes {
        // With two that lack it, the lock would be lost.
        until("all nodes have it", || nodes.iter().all(|node| keys(node) == ["lockwell:a"])).await;
        let before = tell(node, &["GET", "lockwell:a"]);
        tell(node, &["FLUSHALL"]);
        until("the node has it again", || keys(node) == ["lockwell:a"]).await;
        let after = tell(node, &["GET", "lockwell:a"]);
        let token = format!(":{}:", guard.token());
        assert!(after.contains(&token) && before[..38] == after[..38], "{before} {after}");
        assert!(guard.is_held());
    }
    guard.release().await.expect("held");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(nodes.iter().all(|node| keys(node).is_empty()));
}

#[tokio::test]
async fn a_readers_lock_is_set_again_beside_those_of_others() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    let ttl = Duration::from_secs(6);
    let writer = locks.write("a").ttl(ttl).await.expect("a free lock");
    let guards =
        [writer.downgrade().await.expect("held"), locks.read("a").ttl(ttl).await.expect("readers meet")];
    let are_there = |node: &Redis| {
        let members = tell(node, &["HVALS", "lockwell:\u{1f}details\u{1f}a"]);
        guards.iter().all(|guard| members.contains(&format!("{}:", guard.token())))
    };
    for node in &nodes {
        until("all nodes have them", || nodes.iter().all(are_there)).await;
        tell(node, &["FLUSHALL"]);
        until("the node has them again", || are_there(node)).await;
    }
    assert!(locks.write("a").try_now().await.expect("an answer").is_none());
    for guard in guards {
        guard.release().await.expect("held");
    }
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

#[tokio::test]
async fn a_node_that_answers_last_gets_the_lock_again_too() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let proxy = Proxy::start(nodes[0].addr()).await.expect("a proxy");
    proxy.delay(Duration::from_millis(10));
    let locks = client(&url_of(&[proxy.addr(), nodes[1].addr(), nodes[2].addr()])).await;
    let guard = locks.lock("a").ttl(Duration::from_secs(6)).await.expect("a free lock");
    until("all nodes have it", || nodes.iter().all(|node| keys(node) == ["lockwell:a"])).await;
    tell(&nodes[0], &["FLUSHALL"]);
    until("the node has it again", || keys(&nodes[0]) == ["lockwell:a"]).await;
    guard.release().await.expect("held");
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
}

/// Nor do the releases of other locks wait for a node that is slow to take one again.
#[tokio::test]
async fn a_release_does_not_wait_for_a_node_that_gets_another_lock_again() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let proxy = Proxy::start(nodes[0].addr()).await.expect("a proxy");
    let backend =
        backend(&url_of(&[proxy.addr(), nodes[1].addr(), nodes[2].addr()])).await.expect("a connection");
    let ttl = Duration::from_secs(30);
    let [one, other] = ["a", "b"].map(|name| claim_as(Mode::Exclusive, name, ttl));
    let grant = backend.acquire(&one).await.expect("an answer").expect("a free lock");
    backend.acquire(&other).await.expect("an answer").expect("a free lock");
    until("the node has it", || keys(&nodes[0]).len() == 2).await;
    tell(&nodes[0], &["DEL", "lockwell:a"]);
    proxy.delay(Duration::from_millis(500));
    let renewal = backend.renew(&[grant], soon()).await.remove(0);
    assert!(matches!(renewal, Renewal::Renewed(_)), "{renewal:?}");
    // The node has said by then that it lost the lock, and has not said that it has it again.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    let start = std::time::Instant::now();
    for claim in [&other, &one] {
        backend.release(claim).await.expect("a majority");
    }
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    // It gets the lock, and gives it back.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(nodes.iter().all(|node| keys(node).is_empty()), "set again after the release");
}

/// Releases a lock while its renewal, which finds that a node has lost it, is under way.
async fn race(nodes: &[Redis], mode: Mode, rounds: u32) {
    let backend = backend(&redlock_url(nodes)).await.expect("a connection");
    // A runtime of its own, and so connections of its own, as the keeper has.
    let keeper = lockwell_core::backend::OwnRuntime::start("test-keeper").expect("a thread");
    for round in 0..rounds {
        let name = format!("name {round}");
        // Long, so that what is left is seen.
        let claim = claim_as(mode, &name, Duration::from_secs(30));
        let grant = backend.acquire(&claim).await.expect("an answer").expect("a free lock");
        let node = &nodes[round as usize % nodes.len()];
        let key = format!("lockwell:{name}");
        until("the node has it", || keys(node).contains(&key)).await;
        let [members, details] =
            ["members", "details"].map(|what| format!("lockwell:\u{1f}{what}\u{1f}{name}"));
        tell(node, &["DEL", &key, &members, &details]);
        let renewal = keeper.spawn({
            let backend = Arc::clone(&backend);
            async move { backend.renew(&[grant], soon()).await }
        });
        // The timer of the runtime counts in milliseconds.
        std::thread::sleep(Duration::from_micros(u64::from(round % 20) * 40));
        let release = tokio::spawn({
            let (backend, claim) = (Arc::clone(&backend), claim.clone());
            // What waits for the node is carried out in any order.
            node.pause().expect("it runs");
            async move { backend.release(&claim).await }
        });
        tokio::time::sleep(Duration::from_millis(2)).await;
        node.resume().expect("it runs");
        release.await.expect("no panic").expect("a majority");
        let renewal = renewal.await.expect("no panic");
        assert!(!matches!(renewal[0], Renewal::Unknown(_)), "{renewal:?}");
    }
    until("nothing is left", || nodes.iter().all(|node| keys(node).is_empty())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for node in nodes {
        assert!(keys(node).is_empty(), "set again after the release: {:?}", keys(node));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_lock_is_never_set_again_after_its_release() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    race(&nodes, Mode::Exclusive, 200).await;
    race(&nodes, Mode::Shared, 100).await;
}
