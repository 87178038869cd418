//! Locks in a cluster of three masters.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, Locks};
use testbed::{Redis, RedisCluster, if_installed};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::asking::queued;
use crate::servers::{backend, client, on_disk, redis, tell};

async fn start() -> Option<RedisCluster> {
    if_installed(RedisCluster::start(3, &on_disk()).await)
}

/// The cluster of the tests that do it no harm.
pub(crate) async fn cluster() -> Option<&'static RedisCluster> {
    static CLUSTER: OnceCell<Option<RedisCluster>> = OnceCell::const_new();
    CLUSTER.get_or_init(start).await.as_ref()
}

/// Which of the three nodes a lock is on at the start.
pub(crate) fn node_of(cluster: &RedisCluster, name: &str) -> usize {
    let answer = tell(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", &format!("lockwell:{name}")]);
    let slot: usize = answer.trim_start_matches(':').trim_end().parse().expect("a number");
    slot * 3 / 16384
}

/// A name for each node, in the order of the nodes.
pub(crate) fn names(cluster: &RedisCluster, prefix: &str) -> Vec<String> {
    let name = |node| {
        let candidates = (0..).map(|n| format!("{prefix} {n}"));
        candidates.into_iter().find(|name| node_of(cluster, name) == node).expect("some name is there")
    };
    (0..3).map(name).collect()
}

/// All that can be done with a lock, by two clients.
async fn everything(one: &Locks, two: &Locks, name: &str) {
    let guard = one.lock(name).ttl(Duration::from_millis(1500)).await.expect("a free lock");
    assert!(two.lock(name).try_now().await.expect("an answer").is_none());
    let waiting = tokio::spawn(two.lock(name).wait(Duration::from_secs(20)).into_future());
    queued(one, name, 1).await;
    let status = two.inspect(name).await.expect("an answer");
    assert_eq!(status.holders[0].token, guard.token(), "{name}");
    // Longer than the lease lasts.
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert!(guard.is_held(), "{name}: {guard:?}");
    guard.release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert_eq!(one.force_release(name).await.expect("an answer"), 1, "{name}");
    assert_eq!(next.release().await.expect_err("taken").kind(), ErrorKind::Lost);
    let mut last = one.lock(name).await.expect("a free lock");
    for turn in 0..6 {
        let token = last.token();
        last.release().await.expect("held");
        last = if turn % 2 == 0 { two } else { one }.lock(name).await.expect("a free lock");
        assert!(last.token() > token, "{name}: {} after {token}", last.token());
    }
    last.release().await.expect("held");
    assert!(!two.inspect(name).await.expect("an answer").is_held());
}

/// The same with readers, a writer that becomes one of them, and a semaphore.
async fn every_mode(one: &Locks, two: &Locks, name: &str) {
    let ttl = Duration::from_millis(1500);
    let writer = one.write(name).ttl(ttl).await.expect("a free lock");
    let waiting = tokio::spawn(two.read(name).wait(Duration::from_secs(20)).into_future());
    queued(one, name, 1).await;
    let first = writer.downgrade().await.expect("held");
    let second = waiting.await.expect("no panic").expect("its turn");
    assert!(second.token() > first.token(), "{name}");
    let waiting = tokio::spawn(two.write(name).wait(Duration::from_secs(20)).into_future());
    queued(one, name, 1).await;
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert!(first.is_held() && second.is_held() && !waiting.is_finished(), "{name}: {first:?} {second:?}");
    assert!(one.read(name).try_now().await.expect("an answer").is_none(), "{name}: a writer waits");
    first.release().await.expect("held");
    second.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    let first = one.permit(name, 2).await.expect("a permit");
    let second = two.permit(name, 2).await.expect("a permit");
    let waiting = tokio::spawn(two.permit(name, 2).wait(Duration::from_secs(20)).into_future());
    queued(one, name, 1).await;
    second.release().await.expect("held");
    let third = waiting.await.expect("no panic").expect("its turn");
    assert_eq!(one.inspect(name).await.expect("an answer").holders.len(), 2);
    assert_eq!(one.force_release(name).await.expect("an answer"), 2, "{name}");
    for guard in [first, third] {
        assert_eq!(guard.release().await.expect_err("taken").kind(), ErrorKind::Lost);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_on_all_nodes_and_names_with_braces_work() {
    let Some(cluster) = cluster().await else { return };
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let mut names = names(cluster, "plain");
    let braces = ["{x}", "a}b", "{", "}", "}{", "{}", "a{b}c{d}", "{{x}}", "{ü}"];
    names.extend(braces.into_iter().map(str::to_owned));
    join_all(names.iter().map(|name| everything(&one, &two, name))).await;
    join_all(names.iter().map(|name| every_mode(&one, &two, name))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_locks_on_all_nodes_are_renewed_together() {
    let Some(cluster) = cluster().await else { return };
    let locks = client(&cluster.url()).await;
    let requests =
        (0..100).map(|n| locks.lock(format!("held {n}")).ttl(Duration::from_secs(3)).into_future());
    let guards = join_all(requests).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("a free lock")).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stats = locks.stats();
    println!("100 locks in a cluster: {} renewals in {} calls", stats.renewals, stats.renewal_calls);
    assert!(guards.iter().all(lockwell_core::LockGuard::is_held), "{stats:?}");
    assert!(stats.renewals >= 200 && stats.renewal_calls <= stats.renewals / 10, "{stats:?}");
    for release in join_all(guards.into_iter().map(lockwell_core::LockGuard::release)).await {
        release.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_take_turns_and_are_woken_on_every_node() {
    let Some(cluster) = cluster().await else { return };
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    for name in names(cluster, "turns") {
        let holder = one.lock(&*name).await.expect("a free lock");
        let (mut waiters, (served, mut order)) = (JoinSet::new(), tokio::sync::mpsc::unbounded_channel());
        for turn in 0..16 {
            let (request, served) = (if turn % 2 == 0 { &two } else { &one }.lock(&*name), served.clone());
            waiters.spawn(async move {
                let guard = request.await.expect("its turn comes");
                served.send(turn).expect("somebody listens");
                guard.release().await.expect("held");
            });
            queued(&one, &name, turn + 1).await;
        }
        let start = Instant::now();
        holder.release().await.expect("held");
        waiters.join_all().await;
        for turn in 0..16 {
            assert_eq!(order.recv().await, Some(turn), "served in the order of their arrival");
        }
        println!("16 hand-overs in a cluster in {:?}", start.elapsed());
        // Without wake-ups a waiter looks every 1.3 seconds.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_restarted_loses_no_lock_and_no_waiter() {
    let Some(cluster) = start().await else { return };
    let url = format!("{}?timeout=20s", cluster.url());
    let (one, two) = (client(&url).await, client(&url).await);
    let names = names(&cluster, "kept");
    let holder = one.lock(&*names[1]).ttl(Duration::from_secs(30)).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock(&*names[1]).wait(Duration::from_secs(60)).into_future());
    queued(&one, &names[1], 1).await;
    let node: &Redis = &cluster.nodes()[1];
    node.stop().await.expect("it ends");
    // The others go on.
    for name in [&names[0], &names[2]] {
        let other = tokio::time::timeout(Duration::from_secs(1), two.lock(&**name).into_future()).await;
        other.expect("in time").expect("a free lock").release().await.expect("held");
    }
    node.restart().await.expect("it starts again");
    cluster.ready().await.expect("it joins the others");
    assert!(holder.is_held(), "{holder:?}");
    assert!(two.lock(&*names[1]).try_now().await.expect("an answer").is_none());
    let token = holder.token();
    holder.release().await.expect("held");
    let start = Instant::now();
    let next = waiting.await.expect("no panic").expect("its turn");
    println!("the turn came {:?} after the release", start.elapsed());
    assert!(next.token() > token && start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    next.release().await.expect("held");
}

/// Why locks do not work at this address, whether that shows when connecting or later.
async fn misconfigured(url: &str, hint: &str) {
    let start = Instant::now();
    let error = match backend(url).await {
        Err(error) => error,
        Ok(backend) => Locks::new(backend).expect("a keeper").lock("a").await.expect_err("no locks here"),
    };
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}: {error:#}");
    assert!(error.to_string().contains(hint), "{url}: {error:#}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_wrong_scheme_is_told_the_right_one() {
    let (Some(cluster), Some(server)) = (cluster().await, redis().await) else { return };
    for node in cluster.nodes() {
        misconfigured(&node.url(), "redis+cluster://").await;
    }
    misconfigured(&server.url().replace("redis://", "redis+cluster://"), "redis://").await;
}
