//! An old master that still answers its clients, while another has taken its place.

use std::time::{Duration, Instant};

use lockwell_core::{LockGuard, Locks};
use testbed::{Direction, Proxy, Redis, RedisSentinel, if_installed};
use tokio::task::JoinHandle;

use crate::servers::{client, in_memory, redis_with, tell, until};

/// The shortest that there may be.
const LONGEST: Duration = Duration::from_secs(4);

/// Asks for the lock until it is granted. Says when.
async fn granted(locks: &Locks) -> (LockGuard, Instant) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match locks.lock("a").ttl(LONGEST).wait(Duration::from_secs(10)).await {
            Ok(guard) => return (guard, Instant::now()),
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error:#}"),
        }
    }
}

/// Says when the holder is told that it has lost the lock.
fn lost(guard: LockGuard) -> JoinHandle<Instant> {
    tokio::spawn(async move {
        guard.lost().await;
        Instant::now()
    })
}

/// The sentinels and the replica see nothing of the old master any more. A client does, and sees no sentinel.
/// It goes on there for as long as the last word of the sentinels counts, and has lost its lock before the new
/// master grants it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_cut_off_with_an_old_master_has_lost_its_lock_in_time() {
    let Some(group) = if_installed(RedisSentinel::start_with(&in_memory()).await) else { return };
    let mut proxies = Vec::new();
    for sentinel in group.addresses() {
        proxies.push(Proxy::start(sentinel).await.expect("a proxy"));
    }
    let addresses: Vec<_> = proxies.iter().map(Proxy::addr).collect();
    let one = client(&format!("{}?longest_ttl=4s", group.url_via(&addresses))).await;
    let two = client(&format!("{}?longest_ttl=4s", group.url())).await;
    let (guard, _) = granted(&one).await;
    // Renewed some times, so that the keeper has asked, too.
    tokio::time::sleep(LONGEST).await;
    assert!(guard.is_held());
    for proxy in &proxies {
        proxy.blackhole(Direction::Both);
    }
    let hidden = ["-ping", "-psync", "-sync", "-publish", "-multi", "-replicaof", "-slaveof"];
    tell(group.master(), &[&["ACL", "SETUSER", "default"][..], &hidden].concat());
    tell(group.master(), &["CLIENT", "KILL", "TYPE", "replica"]);
    // With the command to become a replica the sentinels send one that closes the connections of clients.
    tell(group.master(), &["ACL", "SETUSER", "default", "-client"]);
    let cut = Instant::now();
    let lost = lost(guard);
    let (next, granted) = granted(&two).await;
    println!("granted {:?} after the cut", granted - cut);
    assert!(lost.is_finished(), "two holders");
    let lost = lost.await.expect("no panic");
    println!("lost {:?} after the cut", lost - cut);
    assert!(lost <= granted, "two holders for {:?}", lost - granted);
    assert_eq!(tell(group.master(), &["SET", "alive", "1"]), "+OK\r\n", "it is still a master");
    drop(next);
}

/// Without sentinels, as after a promotion by hand, the old master stops by itself when its replica has been
/// silent for `min-replicas-max-lag` and up to two seconds. What it extended last ends a lease later, and the
/// new one grants nothing for a lease and 2 %.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_without_its_replica_stops_by_itself() {
    const LAG: Duration = Duration::from_secs(2);
    let options = in_memory().setting("min-replicas-to-write", "1").setting("min-replicas-max-lag", "2");
    let Some(master) = redis_with(&options).await else { return };
    let proxy = Proxy::start(master.addr()).await.expect("a proxy");
    let replica = Redis::start_replica(proxy.addr(), &in_memory()).await.expect("a replica");
    let writes = || master.command(&["SET", "alive", "1"]).is_ok_and(|answer| answer == "+OK\r\n");
    until("the replica is in step", writes).await;
    let options = "durability=grace&longest_ttl=4s&timeout=2s";
    let one = client(&format!("{}?{options}", master.url())).await;
    let (guard, _) = granted(&one).await;
    tokio::time::sleep(LONGEST).await;
    assert!(guard.is_held());
    let lost = lost(guard);
    // The worst case: the promotion comes with the cut.
    proxy.blackhole(Direction::Both);
    tell(&replica, &["REPLICAOF", "NO", "ONE"]);
    let cut = Instant::now();
    let two = client(&format!("{}?{options}", replica.url())).await;
    let (next, granted) = granted(&two).await;
    let lost = tokio::time::timeout(Duration::from_secs(30), lost).await.expect("it stops");
    let lost = lost.expect("no panic");
    let overlap = lost.saturating_duration_since(granted);
    println!("granted {:?}, lost {:?} after the cut: two holders for {overlap:?}", granted - cut, lost - cut);
    assert!(overlap < LAG + Duration::from_secs(2), "two holders for {overlap:?}");
    next.release().await.expect("held");
}
