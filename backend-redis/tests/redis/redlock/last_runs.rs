//! Whether a node that has just started remembers its locks depends on what its last run has kept, and not on
//! its settings alone.

use std::time::{Duration, Instant};

use lockwell_core::Error;
use testbed::Redis;

use super::nodes;
use crate::servers::{client, on_disk, redlock_url, tell};

/// Where a node notes which run has its counters.
const NOTE: &str = "lockwell:\u{1f}token\u{1f}run";

const TTL: Duration = Duration::from_secs(2);

fn is_kept(node: &Redis) -> bool {
    tell(node, &["GET", NOTE]).contains(":kept")
}

/// A client takes a lock again and again, until each node is as it should be.
async fn used(nodes: &[Redis], so: impl Fn(&Redis) -> bool) {
    let locks = client(&format!("{}?longest_ttl=2s", redlock_url(nodes))).await;
    let start = Instant::now();
    loop {
        let guard = locks.lock("a").ttl(TTL).wait(Duration::from_secs(30)).await;
        guard.expect("votes").release().await.expect("held");
        if nodes.iter().all(&so) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "a note stays as it is");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn set(nodes: &[Redis], appendfsync: &str) {
    for node in nodes {
        tell(node, &["CONFIG", "SET", "appendfsync", appendfsync]);
    }
}

/// Starts all nodes again. From now on they keep every change.
async fn restart(nodes: &[Redis]) {
    for node in nodes {
        node.stop().await.expect("it ends");
        node.restart().await.expect("it starts again");
    }
    set(nodes, "always");
}

/// Why a client that comes now gets no lock.
async fn refusal(nodes: &[Redis]) -> Option<Error> {
    let locks = client(&format!("{}?longest_ttl=1m", redlock_url(nodes))).await;
    match locks.lock("b").ttl(TTL).try_now().await {
        Ok(guard) => {
            guard.expect("a free lock").release().await.expect("held");
            None
        }
        Err(error) => Some(error),
    }
}

async fn are_without_a_vote(nodes: &[Redis]) {
    let error = refusal(nodes).await.expect("no votes");
    assert!(format!("{error:#}").contains("have no vote for"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_last_run_did_not_keep_may_be_lost_whatever_the_settings_are_now() {
    let Some(nodes) = nodes(3, &on_disk().setting("appendfsync", "everysec")).await else { return };
    used(&nodes, |node| tell(node, &["EXISTS", NOTE]).starts_with(":1")).await;
    restart(&nodes).await;
    are_without_a_vote(&nodes).await;
    // Later they have votes, and this run keeps every change.
    used(&nodes, is_kept).await;
    restart(&nodes).await;
    let refused = refusal(&nodes).await;
    assert!(refused.is_none(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_settings_were_changed_for_the_worse_has_not_kept_every_change() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    used(&nodes, is_kept).await;
    set(&nodes, "everysec");
    used(&nodes, |node| !is_kept(node)).await;
    restart(&nodes).await;
    are_without_a_vote(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_may_not_ask_which_run_it_is_takes_no_vote_from_others() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    used(&nodes, is_kept).await;
    for node in &nodes {
        let mut command = vec!["ACL", "SETUSER", "app", "on", ">canary-app"];
        command.extend(include_str!("../minimal.acl").split_whitespace());
        tell(node, &command);
    }
    let url = redlock_url(&nodes).replace("://", "://app:canary-app@");
    let locks = client(&format!("{url}?longest_ttl=2s")).await;
    let start = Instant::now();
    // After `longest_ttl` it restores the counters of nodes that may have forgotten them, as far as it knows.
    while start.elapsed() < Duration::from_secs(6) {
        let guard = locks.lock("a").ttl(TTL).wait(Duration::from_secs(30)).await;
        guard.expect("votes").release().await.expect("held");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    nodes[2].kill().expect("it runs");
    let refused = refusal(&nodes).await;
    assert!(refused.is_none(), "{refused:?}");
}
