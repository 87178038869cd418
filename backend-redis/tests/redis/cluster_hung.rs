//! A master of a cluster that hangs: it is stopped, not dead, so that connections to it look alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::{LeaseState, LockGuard, Locks};
use testbed::{RedisCluster, if_installed};

use crate::asking::queued;
use crate::cluster::{names, node_of};
use crate::servers::{client, on_disk, tell};

const TTL: Duration = Duration::from_secs(3);

/// Three masters. Without the setting they all refuse all keys, as soon as they take one of them for dead.
async fn start() -> Option<RedisCluster> {
    let options = on_disk().setting("cluster-require-full-coverage", "no");
    if_installed(RedisCluster::start(3, &options).await)
}

/// So many names of these nodes.
fn names_on(cluster: &RedisCluster, nodes: &[usize], prefix: &str, count: usize) -> Vec<String> {
    let names = (0..).map(|n| format!("{prefix} {n}"));
    names.filter(|name| nodes.contains(&node_of(cluster, name))).take(count).collect()
}

async fn held(locks: &Locks, names: &[String]) -> Vec<LockGuard> {
    let guards = join_all(names.iter().map(|name| locks.lock(&**name).ttl(TTL).into_future())).await;
    guards.into_iter().map(|guard| guard.expect("a free lock")).collect()
}

/// Takes and releases a lock at once; says how long that took.
async fn once(locks: &Locks, name: &str) -> Duration {
    let start = Instant::now();
    let guard = locks.lock(name).try_now().await.expect("an answer").expect("a free lock");
    guard.release().await.expect("held");
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_costs_only_its_own_names() {
    let Some(cluster) = start().await else { return };
    let (one, two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let healthy = held(&one, &names_on(&cluster, &[1, 2], "held", 100)).await;
    let lost = held(&one, &names_on(&cluster, &[0], "lost", 20)).await;
    let [_, free, _] = &*names(&cluster, "free") else { panic!("three names") };
    let [_, _, handed] = &*names(&cluster, "handed") else { panic!("three names") };
    let stuck = names_on(&cluster, &[0], "stuck", 10);
    let mine = one.lock(&**handed).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock(&**handed).wait(Duration::from_secs(60)).into_future());
    queued(&one, handed, 1).await;

    cluster.nodes()[0].pause().expect("it runs");
    let over = Arc::new(AtomicBool::new(false));
    let stuck: Vec<_> = stuck
        .into_iter()
        .map(|name| {
            let (locks, over) = (one.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    drop(locks.lock(&*name).try_now().await);
                }
            })
        })
        .collect();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut calls = 0;
    while start.elapsed() < 3 * TTL {
        slowest = slowest.max(once(&one, free).await);
        calls += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{calls} times taken and released at a healthy node, the slowest in {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let released = Instant::now();
    mine.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    // Without a notification a waiter looks every 1.3 seconds.
    assert!(released.elapsed() < Duration::from_secs(1), "{:?}", released.elapsed());
    let stats = one.stats();
    for guard in &healthy {
        assert_eq!(guard.lease_state(), LeaseState::Held, "{guard:?} {stats:?}");
    }
    assert!(lost.iter().all(|guard| !guard.is_held()), "nobody can have extended these");

    // Connecting afresh, whichever node is asked first, and again after a cut.
    for _ in 0..5 {
        let start = Instant::now();
        let late = client(&cluster.url()).await;
        once(&late, free).await;
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
    let [hung, well] = [0, 1].map(|node| cluster.nodes()[node].addr());
    let late = client(&format!("redis+cluster://{hung},{well}")).await;
    for node in &cluster.nodes()[1..] {
        tell(node, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    let took = [once(&late, free).await, once(&one, free).await];
    assert!(took.iter().all(|took| *took < Duration::from_secs(1)), "{took:?}");

    over.store(true, Ordering::Relaxed);
    cluster.nodes()[0].resume().expect("it is stopped");
    for task in stuck {
        task.await.expect("no panic");
    }
    cluster.ready().await.expect("it joins the others");
    let [again, ..] = &*names(&cluster, "again") else { panic!("three names") };
    let took = once(&one, again).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    for release in join_all(healthy.into_iter().map(LockGuard::release)).await {
        release.expect("held");
    }
}
