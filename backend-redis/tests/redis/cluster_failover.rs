//! A master of a cluster whose place its replica takes.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LeaseState};
use testbed::{Durability, Redis, RedisCluster, if_installed};

use crate::asking::queued;
use crate::cluster::names;
use crate::sentinel::lock_at_last;
use crate::servers::{client, in_memory, keys, tell, until};

/// Three masters with a replica each.
async fn start() -> Option<RedisCluster> {
    if_installed(RedisCluster::start_with_replicas(3, &in_memory()).await)
}

async fn has(replica: &Redis, name: &str) {
    let key = format!("lockwell:{name}");
    until("the replica has it", || keys(replica).contains(&key)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_on_command_and_after_the_masters_death() {
    let Some(cluster) = start().await else { return };
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let (kept, other) = (names(&cluster, "kept"), names(&cluster, "other"));
    let ttl = Duration::from_secs(20);
    let mut guards = Vec::new();
    for name in &kept {
        guards.push(one.lock(&**name).ttl(ttl).await.expect("a free lock"));
    }
    let waiting = tokio::spawn(two.lock(&*kept[0]).wait(Duration::from_secs(60)).into_future());
    queued(&one, &kept[0], 1).await;
    has(&cluster.replicas()[0], &kept[0]).await;

    // Nothing is lost, and nobody waits for long: the master holds writes back until its replica is in step.
    tell(&cluster.replicas()[0], &["CLUSTER", "FAILOVER"]);
    until("it takes over", || tell(&cluster.replicas()[0], &["ROLE"]).contains("master")).await;
    let start = Instant::now();
    let guard = one.lock(&*other[0]).await.expect("a free lock");
    println!("a lock at the replica that took over after {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    guard.release().await.expect("held");
    assert_eq!(guards[0].lease_state(), LeaseState::Held);
    let token = guards[0].token();
    guards.remove(0).release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.token() > token);
    next.release().await.expect("held");

    // The other masters agree after two seconds that one of them is dead.
    has(&cluster.replicas()[1], &kept[1]).await;
    cluster.nodes()[1].kill().expect("it runs");
    let third = one.lock(&*other[2]).try_now().await.expect("an answer").expect("a free lock");
    third.release().await.expect("held");
    let (guard, took) = lock_at_last(&two, &other[1]).await;
    println!("a lock at the replica of a master that died after {took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    guard.release().await.expect("held");
    assert!(two.lock(&*kept[1]).try_now().await.expect("an answer").is_none(), "the lock is still there");
    for guard in guards {
        guard.release().await.expect("held");
    }
}

/// A hung replica, or a hung master elsewhere, says nothing about the replicas of this master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_waited_for_at_the_locks_own_master() {
    // Nobody takes over within this test.
    let options = in_memory().setting("cluster-node-timeout", "30000");
    let Some(cluster) = if_installed(RedisCluster::start_with_replicas(3, &options).await) else { return };
    let locks = client(&format!("{}?wait_replicas=1", cluster.url())).await;
    let names = names(&cluster, "confirmed");
    for (node, name) in names.iter().enumerate() {
        let guard = locks.lock(&**name).await.expect("confirmed");
        assert!(keys(&cluster.replicas()[node]).contains(&format!("lockwell:{name}")), "the replica has it");
        guard.release().await.expect("held");
    }
    cluster.replicas()[0].pause().expect("it runs");
    let ttl = Duration::from_secs(2);
    let error = locks.lock(&*names[0]).ttl(ttl).await.expect_err("nobody confirms");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error:#}");
    cluster.nodes()[1].pause().expect("it runs");
    let start = Instant::now();
    let guard = locks.lock(&*names[2]).ttl(ttl).await.expect("confirmed");
    // Longer than the lease lasts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(guard.lease_state(), LeaseState::Held);
    guard.release().await.expect("held");
    println!("a lock is confirmed, kept for 3 s and released in {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    cluster.replicas()[0].resume().expect("it is stopped");
    locks.lock(&*names[0]).await.expect("confirmed").release().await.expect("held");
    cluster.nodes()[1].resume().expect("it is stopped");
}

/// A cluster that serves all slots or none says so itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_told() {
    let options = in_memory().durability(Durability::Disk);
    let Some(cluster) = if_installed(RedisCluster::start(3, &options).await) else { return };
    let locks = client(&format!("{}?timeout=1s", cluster.url())).await;
    let names = names(&cluster, "down");
    let guard = locks.lock(&*names[0]).ttl(Duration::from_secs(30)).await.expect("a free lock");
    cluster.nodes()[2].kill().expect("it runs");
    until("the others notice", || {
        tell(&cluster.nodes()[0], &["CLUSTER", "INFO"]).contains("cluster_state:fail")
    })
    .await;
    for name in &names[..2] {
        let error = locks.lock(&**name).try_now().await.expect_err("all slots or none");
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
        assert!(error.is_retryable() && error.to_string().contains("not all slots are served"), "{error:#}");
    }
    cluster.nodes()[2].restart().await.expect("it starts again");
    cluster.ready().await.expect("it joins the others");
    assert_eq!(guard.lease_state(), LeaseState::Held);
    locks.lock(&*names[1]).await.expect("a free lock").release().await.expect("held");
}
