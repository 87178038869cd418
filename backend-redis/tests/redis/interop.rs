//! Other programs on the same locks: redis-py and node-redlock, as they are published.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LockRequest, Locks, Renewal};
use testbed::Redis;
use tokio::task::JoinSet;

use crate::asking::queued;
use crate::programs::Program;
use crate::servers::{backend, client, keys, on_disk, redis, redis_with, redlock_url, soon, until};

/// Lockwell, with another program on the same servers.
struct Pair {
    url: String,
    locks: Locks,
    other: Program,
    servers: Vec<Redis>,
}

impl Pair {
    async fn with_redis_py() -> Option<Self> {
        let servers = vec![redis().await?];
        let other = Program::redis_py(&servers[0])?;
        Some(Self::new(servers[0].url(), other, servers).await)
    }

    async fn with_node_redlock() -> Option<Self> {
        let servers = vec![redis().await?];
        let other = Program::node_redlock(&servers)?;
        Some(Self::new(servers[0].url(), other, servers).await)
    }

    async fn with_node_redlock_on_three() -> Option<Self> {
        let mut servers = Vec::new();
        for _ in 0..3 {
            servers.push(redis_with(&on_disk()).await?);
        }
        let other = Program::node_redlock(&servers)?;
        Some(Self::new(redlock_url(&servers), other, servers).await)
    }

    async fn new(url: String, other: Program, servers: Vec<Redis>) -> Self {
        let url = format!("{url}?namespace=");
        Self { locks: client(&url).await, url, other, servers }
    }

    /// Frees a lock as an operator does. The other program may not know yet.
    async fn free_by_force(&self, name: &str) {
        assert_eq!(self.locks.force_release(name).await.expect("an answer"), 1);
    }

    async fn nothing_is_left(&self) {
        until("nothing is left", || self.servers.iter().all(|server| keys(server).is_empty())).await;
    }
}

/// Each is refused while the other holds, and gets the lock when the other is done.
async fn they_exclude_each_other(mut pair: Pair) {
    let guard = pair.locks.lock("a").await.expect("a free lock");
    assert_eq!(pair.other.ask("try a 10000"), "no");
    assert_eq!(pair.other.ask("try b 10000"), "yes", "another name is another lock");
    guard.release().await.expect("held");
    // A release of ours answers when a majority of nodes has carried it out.
    until("all have carried it out", || pair.servers.iter().all(|server| keys(server) == ["b"])).await;
    assert_eq!(pair.other.ask("try a 10000"), "yes");
    until("the lock's name is the key", || pair.servers.iter().all(|server| keys(server) == ["a", "b"]))
        .await;
    assert!(pair.locks.lock("a").try_now().await.expect("an answer").is_none());
    let status = pair.locks.inspect("a").await.expect("an answer");
    assert_eq!((status.holders.len(), status.waiters), (1, 0));
    assert_eq!(status.holders[0].label, "another program");
    assert!(status.holders[0].ttl_left > Duration::from_secs(5), "{status:?}");
    let secret = pair.other.ask("token a");
    assert!(secret.len() >= 32 && !format!("{status:?}").contains(&secret[..8]), "{status:?}");
    assert_eq!(pair.other.ask("release a"), "done");
    assert_eq!(pair.other.ask("release b"), "done");
    pair.locks.lock("a").try_now().await.expect("an answer").expect("free").release().await.expect("held");
    pair.nothing_is_left().await;
}

/// A waiter of ours has the lock soon after the other program has released it without a notification.
async fn the_wait_for_it_is_short(mut pair: Pair) {
    let waiters = [client(&pair.url).await, client(&pair.url).await];
    let mut times = Vec::new();
    for _ in 0..5 {
        pair.nothing_is_left().await;
        assert_eq!(pair.other.ask("try a 20000"), "yes");
        let mut turns = JoinSet::new();
        for waiter in &waiters {
            let request = waiter.lock("a");
            turns.spawn(async move {
                let guard = request.await.expect("its turn");
                let came = Instant::now();
                guard.release().await.expect("held");
                came
            });
        }
        queued(&pair.locks, "a", 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(turns.try_join_next().is_none());
        let start = Instant::now();
        assert_eq!(pair.other.ask("release a"), "done");
        // Redlock does not say who is first.
        let came = turns.join_all().await;
        times.push(came.into_iter().min().expect("two of them").duration_since(start));
    }
    // The machine may be busy now and then.
    times.sort();
    assert!(times[2] < Duration::from_millis(200), "{times:?}");
    pair.nothing_is_left().await;
}

/// Ours waits for the lease of one that died, and the other program for ours.
async fn a_lease_ends_for_the_other(mut pair: Pair) {
    let mut times = Vec::new();
    let began = Instant::now();
    while times.len() < 3 {
        assert!(began.elapsed() < Duration::from_secs(60), "{times:?}");
        pair.nothing_is_left().await;
        let asked = Instant::now();
        if pair.other.ask("try a 300") == "no" {
            // On a busy machine the votes may take as long as the lease.
            continue;
        }
        let start = Instant::now();
        let guard = pair.locks.lock("a").await.expect("its turn");
        // The lease began after the question.
        assert!(asked.elapsed() > Duration::from_millis(290), "{:?}", asked.elapsed());
        times.push(start.elapsed());
        // node-redlock keeps the votes of a failed try, which then stand in its own way until their lease
        // ends.
        pair.other.send("wait a 2000");
        tokio::time::sleep(Duration::from_millis(50)).await;
        guard.release().await.expect("held");
        assert_eq!(pair.other.answer(), "yes");
        assert_eq!(pair.other.ask("release a"), "done");
    }
    times.sort();
    assert!(times[1] < Duration::from_millis(600), "{times:?}");
    pair.nothing_is_left().await;
}

/// Readers and the holders of permits keep the other program out until the last of them has gone.
async fn it_is_kept_out_by_those_who_hold_together(mut pair: Pair, requests: [LockRequest; 2]) {
    let [first, second] = requests;
    let first = first.await.expect("a free lock");
    let second = second.await.expect("they meet");
    assert_eq!(pair.other.ask("try a 10000"), "no");
    first.release().await.expect("held");
    assert_eq!(pair.other.ask("try a 10000"), "no");
    let start = Instant::now();
    second.release().await.expect("held");
    pair.nothing_is_left().await;
    assert_eq!(pair.other.ask("try a 10000"), "yes");
    println!("it had the lock {:?} after the last release", start.elapsed());
    assert!(pair.locks.read("a").try_now().await.expect("an answer").is_none());
    let waiting = tokio::spawn(pair.locks.read("a").into_future());
    queued(&pair.locks, "a", 1).await;
    assert_eq!(pair.other.ask("release a"), "done");
    let reader = waiting.await.expect("no panic").expect("its turn");
    pair.free_by_force("a").await;
    pair.nothing_is_left().await;
    assert_eq!(pair.other.ask("try a 20000"), "yes");
    let ours = backend(&pair.url).await.expect("a connection");
    let renewal = ours.renew(&[reader.grant().clone()], soon()).await.remove(0);
    assert!(matches!(renewal, Renewal::Lost), "{renewal:?}");
    assert_eq!(reader.release().await.expect_err("not ours").kind(), ErrorKind::Lost);
    assert_eq!(pair.other.ask("release a"), "done", "it is still the other program's");
    pair.nothing_is_left().await;
}

/// Neither can free or extend what is the other's by now. `calls` are those of the other program.
async fn neither_touches_the_others(mut pair: Pair, calls: &[&str], refusal: &str) {
    for call in calls {
        pair.nothing_is_left().await;
        assert_eq!(pair.other.ask("try a 20000"), "yes");
        pair.free_by_force("a").await;
        let guard = pair.locks.lock("a").ttl(Duration::from_secs(10)).await.expect("a free lock");
        assert_eq!(pair.other.ask(call), refusal, "{call}");
        let left = pair.locks.inspect("a").await.expect("an answer").holders[0].ttl_left;
        assert!(left > Duration::from_secs(8) && left <= Duration::from_secs(10), "{call}: {left:?}");
        guard.release().await.expect("untouched");
    }
    let guard = pair.locks.lock("a").await.expect("a free lock");
    pair.free_by_force("a").await;
    pair.nothing_is_left().await;
    assert_eq!(pair.other.ask("try a 20000"), "yes");
    let ours = backend(&pair.url).await.expect("a connection");
    let renewal = ours.renew(&[guard.grant().clone()], soon()).await.remove(0);
    assert!(matches!(renewal, Renewal::Lost), "{renewal:?}");
    let error = guard.release().await.expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
    assert_eq!(pair.other.ask("extend a 20000"), "done", "it is still the other program's");
    assert_eq!(pair.other.ask("release a"), "done");
    pair.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_exclude_each_other() {
    let Some(pair) = Pair::with_redis_py().await else { return };
    they_exclude_each_other(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_is_kept_out_by_readers_and_by_permits() {
    let Some(pair) = Pair::with_redis_py().await else { return };
    let requests = [pair.locks.read("a"), pair.locks.read("a")];
    it_is_kept_out_by_those_who_hold_together(pair, requests).await;
    let Some(pair) = Pair::with_redis_py().await else { return };
    let requests = [pair.locks.permit("a", 2), pair.locks.permit("a", 2)];
    it_is_kept_out_by_those_who_hold_together(pair, requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_is_kept_out_by_readers() {
    let Some(pair) = Pair::with_node_redlock_on_three().await else { return };
    let requests = [pair.locks.read("a"), pair.locks.read("a")];
    it_is_kept_out_by_those_who_hold_together(pair, requests).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_redis_py_is_short() {
    let Some(pair) = Pair::with_redis_py().await else { return };
    the_wait_for_it_is_short(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_redis_py_ends() {
    let Some(pair) = Pair::with_redis_py().await else { return };
    a_lease_ends_for_the_other(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_do_not_touch_each_others_locks() {
    let Some(pair) = Pair::with_redis_py().await else { return };
    let calls = ["release a", "extend a 60000", "reacquire a"];
    neither_touches_the_others(pair, &calls, "LockNotOwnedError").await;
}

/// redis-py sets no expiry without `timeout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_lock_of_redis_py_without_an_end() {
    let Some(mut pair) = Pair::with_redis_py().await else { return };
    assert_eq!(pair.other.ask("try a"), "yes");
    let status = pair.locks.inspect("a").await.expect("an answer");
    assert_eq!(status.holders[0].ttl_left, Duration::MAX);
    let waiting = pair.locks.lock("a").wait(Duration::from_millis(300));
    assert_eq!(waiting.await.expect_err("held").kind(), ErrorKind::TimedOut);
    assert_eq!(pair.other.ask("owned a"), "yes");
    let waiting = tokio::spawn(pair.locks.lock("a").into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(pair.other.ask("release a"), "done");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    pair.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_we_exclude_each_other() {
    let Some(pair) = Pair::with_node_redlock().await else { return };
    they_exclude_each_other(pair).await;
    let Some(pair) = Pair::with_node_redlock_on_three().await else { return };
    they_exclude_each_other(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_node_redlock_is_short() {
    let Some(pair) = Pair::with_node_redlock().await else { return };
    the_wait_for_it_is_short(pair).await;
    let Some(pair) = Pair::with_node_redlock_on_three().await else { return };
    the_wait_for_it_is_short(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_node_redlock_ends() {
    let Some(pair) = Pair::with_node_redlock().await else { return };
    a_lease_ends_for_the_other(pair).await;
    let Some(pair) = Pair::with_node_redlock_on_three().await else { return };
    a_lease_ends_for_the_other(pair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_redlock_and_we_do_not_touch_each_others_locks() {
    let calls = ["release a", "extend a 60000"];
    let Some(pair) = Pair::with_node_redlock().await else { return };
    neither_touches_the_others(pair, &calls, "ExecutionError").await;
    let Some(pair) = Pair::with_node_redlock_on_three().await else { return };
    neither_touches_the_others(pair, &calls, "ExecutionError").await;
}
