//! Nodes that have no vote yet, and the errors of claims.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::ErrorKind;
use testbed::Redis;

use super::nodes;
use crate::servers::{client, in_memory, on_disk, redlock_url, tell, until};

const LONGEST: Duration = Duration::from_secs(6);

fn url(nodes: &[Redis]) -> String {
    format!("{}?longest_ttl={}s", redlock_url(nodes), LONGEST.as_secs())
}

#[tokio::test]
async fn a_claim_is_told_why_nodes_have_no_vote() {
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    let start = Instant::now();
    let locks = client(&url(&nodes)).await;
    let request = || locks.lock("a").ttl(Duration::from_secs(2));
    for outcome in [request().try_now().await.err(), request().wait(Duration::from_secs(1)).await.err()] {
        let error = outcome.expect("no node has a vote");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        let text = format!("{error:#}");
        assert!(text.contains(" of 3 nodes have no vote for "), "{text}");
        assert!(text.contains("a shorter longest_ttl avoids this, or appendfsync always"), "{text}");
    }
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    // One that has the time gets the lock.
    let waits = locks.lock("b").ttl(Duration::from_secs(2)).wait(Duration::from_secs(30)).into_future();
    let (tried, waited) = tokio::join!(request().through_grace().try_now(), waits);
    assert!(start.elapsed() + Duration::from_secs(2) > LONGEST, "{:?}", start.elapsed());
    for guard in [tried.expect("after the delay").expect("it is free"), waited.expect("after the delay")] {
        guard.release().await.expect("held");
    }
}

/// A claim that has time outlives a restart of all nodes that takes longer than a request may.
#[tokio::test]
async fn a_claim_waits_for_a_majority_that_is_down() {
    let Some(mut nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&format!("{}?timeout=1s", redlock_url(&nodes))).await;
    nodes[1..].iter().for_each(|node| node.kill().expect("it runs"));
    let error = locks.lock("a").wait(Duration::from_millis(1500)).await.expect_err("one node of three");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    let waiting = tokio::spawn(locks.lock("a").wait(Duration::from_secs(30)).into_future());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    for outcome in join_all(nodes[1..].iter_mut().map(|node| node.restart())).await {
        outcome.expect("it starts again");
    }
    waiting.await.expect("no panic").expect("a majority").release().await.expect("held");
}

/// An append-only file that was switched on in this run has nothing of what the node forgot at its start.
#[tokio::test]
async fn a_file_that_was_switched_on_later_remembers_nothing() {
    let Some(nodes) = nodes(3, &in_memory()).await else { return };
    for node in &nodes {
        tell(node, &["CONFIG", "SET", "appendfsync", "always"]);
        tell(node, &["CONFIG", "SET", "appendonly", "yes"]);
    }
    let locks = client(&url(&nodes)).await;
    let error = locks.lock("a").ttl(Duration::from_secs(2)).try_now().await.expect_err("no votes");
    assert!(format!("{error:#}").contains("have no vote for"), "{error:#}");
}

/// Such a node answers before its change is on the disk, while it rewrites its file.
#[tokio::test]
async fn a_node_that_does_not_write_during_rewrites_may_forget() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    for node in &nodes {
        tell(node, &["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    }
    let locks = client(&url(&nodes)).await;
    let error = locks.lock("a").ttl(Duration::from_secs(2)).try_now().await.expect_err("no votes");
    assert!(format!("{error:#}").contains("have no vote for"), "{error:#}");
}

/// A rewrite in good order, long after the start, costs no vote: also not where a node is down.
#[tokio::test]
async fn a_rewrite_of_the_file_costs_no_vote() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let url = format!("{}?longest_ttl=1s", redlock_url(&nodes));
    client(&url)
        .await
        .lock("a")
        .ttl(Duration::from_secs(1))
        .await
        .expect("votes")
        .release()
        .await
        .expect("held");
    for node in &nodes {
        tell(node, &["BGREWRITEAOF"]);
    }
    tokio::time::sleep(Duration::from_millis(2500)).await;
    nodes[0].kill().expect("it runs");
    let locks = client(&url).await;
    locks
        .lock("a")
        .ttl(Duration::from_secs(1))
        .try_now()
        .await
        .expect("votes")
        .expect("free")
        .release()
        .await
        .expect("held");
}

/// With `create=false` nothing is written before there is a claim, neither at nodes that remember nor at
/// those whose counters are to be restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_looks_writes_nothing() {
    let (Some(remember), Some(forgot)) = (nodes(3, &on_disk()).await, nodes(3, &in_memory()).await) else {
        return;
    };
    // From now on those that forgot can be repaired.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    for nodes in [remember, forgot] {
        let url = format!("{}?longest_ttl=1s", redlock_url(&nodes));
        let locks = client(&format!("{url}&create=false")).await;
        assert!(!locks.inspect("a").await.expect("an answer").is_held());
        assert_eq!(locks.held().await.expect("an answer").len(), 0);
        assert_eq!(locks.force_release("a").await.expect("an answer"), 0);
        tokio::time::sleep(Duration::from_millis(200)).await;
        for node in &nodes {
            assert_eq!(tell(node, &["DBSIZE"]), ":0\r\n", "{}", tell(node, &["KEYS", "*"]));
        }
        // It gets votes all the same.
        let guard = locks.lock("a").ttl(Duration::from_millis(800)).wait(Duration::from_secs(20)).await;
        guard.expect("votes").release().await.expect("held");
        drop(client(&url).await);
        let noted = |node| tell(node, &["EXISTS", "lockwell:\u{1f}token\u{1f}run"]).starts_with(":1");
        until("every node has the note", || nodes.iter().all(noted)).await;
    }
}
