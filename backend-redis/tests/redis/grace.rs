//! A server that may have forgotten its last grants grants nothing until their leases have ended
//! (`durability=grace`).

use std::time::{Duration, Instant};

use lockwell_core::backend::grace_period;
use lockwell_core::{ErrorKind, LockGuard, Locks, Severity};
use testbed::{Durability, RedisCluster, RedisSentinel, if_installed};

use crate::servers::{client, in_memory, is_redis_6, on_disk, redis, redis_with, refusal, tell, until};

/// The shortest that there may be.
const LONGEST: Duration = Duration::from_secs(4);

fn with_grace(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    // A group of servers has grace periods by default.
    let grace = if url.starts_with("redis:") { "durability=grace&" } else { "" };
    format!("{url}{sign}{grace}longest_ttl=4s")
}

/// A client of a server that has just been started, once the server grants locks.
async fn open(url: &str) -> Locks {
    let locks = client(&with_grace(url)).await;
    let first = locks.lock("first").ttl(LONGEST).wait(Duration::from_secs(30)).await;
    first.expect("after the grace period").release().await.expect("held");
    locks
}

/// Asks again until the server can be reached, and says how long after the loss it granted the lock.
async fn lock_after(lost: Instant, locks: &Locks, name: &str) -> (LockGuard, Duration) {
    loop {
        match locks.lock(name).ttl(LONGEST).wait(Duration::from_secs(30)).await {
            Ok(guard) => return (guard, lost.elapsed()),
            Err(error) => assert!(error.is_retryable(), "{error:#}"),
        }
        assert!(lost.elapsed() < Duration::from_secs(60), "never granted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_waits_for_what_it_has_forgotten() {
    let Some(server) = redis().await else { return };
    let began = Instant::now();
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
    assert!(began.elapsed() > Duration::from_secs(3), "a server that has just started may have forgotten");
    // Now it is known, and nobody waits.
    let error = two.lock("a").ttl(Duration::from_secs(5)).await.expect_err("longer than the grace period");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    assert!(error.to_string().contains("longest_ttl"), "it names the option: {error:#}");
    assert_eq!(two.capabilities().max_ttl(), LONGEST);
    // The default lease would be longer.
    two.lock("a").await.expect("a free lock").release().await.expect("held");
    let guard = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    server.kill().expect("it runs");
    let lost = Instant::now();
    server.restart().await.expect("it starts again");
    let error = two.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    let findings = two.backend().examine().await.expect("an answer");
    assert!(
        findings.iter().any(|one| one.subject == "grace period" && one.severity == Severity::Doubtful),
        "{findings:?}"
    );
    let (next, took) = lock_after(lost, &two, "b").await;
    println!("granted {took:?} after the loss");
    assert!(took >= LONGEST, "{took:?}");
    assert!(next.token() > guard.token());
    next.release().await.expect("held");
    // If the server was away for longer than the lease, its holder has lost it.
    let other = two.lock("a").ttl(LONGEST).try_now().await.expect("open");
    assert_eq!(other.is_none(), guard.is_held(), "it was reclaimed, or has ended");
    // The mark names this run of the server: a third client need not wait.
    let three = client(&with_grace(&server.url())).await;
    three.lock("b").ttl(LONGEST).try_now().await.expect("open").expect("free").release().await.expect("held");
}

/// A server that is ended in good order forgets nothing, but its clients do not know that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_restart_with_all_data_is_followed_by_a_period() {
    let Some(server) = redis_with(&on_disk()).await else { return };
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
    let guard = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    server.stop().await.expect("it ends");
    let ended = Instant::now();
    server.restart().await.expect("it starts again");
    let error = two.lock("b").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    let (next, took) = lock_after(ended, &two, "b").await;
    println!("granted {took:?} after the end of the server");
    assert!(took >= LONGEST, "{took:?}");
    // If the server was away for longer than the lease, its holder has lost it.
    let other = two.lock("a").ttl(LONGEST).try_now().await.expect("open");
    assert_eq!(other.is_none(), guard.is_held(), "it was kept, or has ended");
    next.release().await.expect("held");
}

/// However long the server says that it has been up: that is a difference of two times of its wall clock,
/// which may have been set right after the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_mark_is_watched_for_a_grace_period() {
    let Some(server) = redis().await else { return };
    tokio::time::sleep(LONGEST + Duration::from_secs(2)).await;
    let began = Instant::now();
    let locks = client(&with_grace(&server.url())).await;
    let error = locks.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    let guard = locks.lock("a").ttl(LONGEST).wait(Duration::from_secs(60)).await.expect("a free lock");
    assert!(began.elapsed() >= LONGEST, "{:?}", began.elapsed());
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_agree_on_the_longest_lease() {
    let Some(server) = redis().await else { return };
    let locks = open(&server.url()).await;
    let error = refusal(&format!("{}?durability=grace&longest_ttl=9s", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("longest_ttl=4000ms"), "{error}");
    let error = refusal(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("durability=grace"), "{error}");
    assert_eq!(locks.backend().names().await.expect("an answer"), [], "the mark is no lock");
}

/// What a release finds at a server that may have forgotten a grant may be stale: it grants nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_nothing_in_a_grace_period() {
    let Some(server) = redis().await else { return };
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
    let guard = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").ttl(LONGEST).wait(Duration::from_secs(30)).into_future());
    until("it waits", || !tell(&server, &["KEYS", "*queue*"]).starts_with("*0")).await;
    // What was the master becomes a replica and a master again: the keys stay, its history is another.
    tell(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    tell(&server, &["REPLICAOF", "NO", "ONE"]);
    let promoted = Instant::now();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(guard.is_held());
    guard.release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("its turn");
    println!("granted {:?} after the promotion", promoted.elapsed());
    assert!(promoted.elapsed() >= LONGEST, "{:?}", promoted.elapsed());
    next.release().await.expect("held");
}

/// The status says that holders may be missing, also to a user who may do nothing but look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_is_unknown_until_the_period_is_over() {
    let Some(server) = redis().await else { return };
    let rights = "on >canary ~lockwell:* -@all +eval +evalsha +info +get +time +zrange +zrank +hget +pttl";
    tell(&server, &[&["ACL", "SETUSER", "reader"], &*rights.split(' ').collect::<Vec<_>>()].concat());
    let url = with_grace(&server.url().replace("://", "://reader:canary@"));
    if !is_redis_6() {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "without the option all rights are checked: {error:#}");
    }
    let reader = client(&format!("{url}&create=false")).await;
    let writer = client(&with_grace(&server.url())).await;
    for locks in [&reader, &writer] {
        let status = locks.inspect("a").await.expect("an answer");
        assert!(status.unknown_for.is_some() && !status.is_free(), "{status:?}");
        assert!(locks.grace_left().await.expect("an answer") <= Some(grace_period(LONGEST)));
        let error = locks.observe("a").next().await.expect_err("who leads is unknown");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    }
    let began = Instant::now();
    while reader.grace_left().await.expect("an answer").is_some() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(tell(&server, &["KEYS", "*mark"]).starts_with("*0"), "a reader leaves the mark to others");
    assert!(reader.inspect("a").await.expect("an answer").is_free());
    let error = reader.lock("a").ttl(LONGEST).try_now().await.expect_err("it may only read");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let guard = writer.lock("a").ttl(LONGEST).wait(Duration::from_secs(30)).await.expect("a free lock");
    for locks in [&reader, &writer] {
        let status = locks.inspect("a").await.expect("an answer");
        assert!(status.is_held() && status.unknown_for.is_none(), "{status:?}");
        assert!(locks.inspect("b").await.expect("an answer").is_free());
    }
    // The server is promoted: who holds the lock is known, and whether others do is not.
    tell(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    tell(&server, &["REPLICAOF", "NO", "ONE"]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let status = reader.inspect("a").await.expect("an answer");
    assert!(status.is_held() && status.unknown_for.is_some(), "{status:?}");
    guard.release().await.expect("held");
}

/// An operator knows that the server lacks grants. Clients on other connections notice it within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_period_is_begun_by_hand() {
    let Some(server) = redis().await else { return };
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
    let kept = one.lock("kept").ttl(LONGEST).await.expect("a free lock");
    // A period that is under way begins again.
    for _ in 0..2 {
        let lasts = two.begin_grace().await.expect("begun");
        assert_eq!(lasts, grace_period(LONGEST));
        let error = two.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
        tokio::time::sleep(LONGEST / 2).await;
    }
    let again = Instant::now();
    let error = one.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    let (next, _) = lock_after(again, &one, "a").await;
    assert!(again.elapsed() > LONGEST / 4, "{:?}", again.elapsed());
    assert!(kept.is_held() && two.lock("kept").ttl(LONGEST).try_now().await.expect("an answer").is_none());
    for guard in [next, kept] {
        guard.release().await.expect("held");
    }
    // From now on the mark names the server, so nobody waits.
    let three = client(&with_grace(&server.url())).await;
    three.lock("b").ttl(LONGEST).try_now().await.expect("open").expect("free").release().await.expect("held");
    let other = redis().await.expect("a second server");
    let error = client(&other.url()).await.begin_grace().await.expect_err("without the option");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
}

/// The replica has not received the grant. Without a grace period, two guards would say "held".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_waits_for_what_it_has_not_received() {
    let options = in_memory().durability(Durability::OsCache);
    let Some(group) = if_installed(RedisSentinel::start_with(&options).await) else { return };
    let (one, two) = (open(&group.url()).await, client(&with_grace(&group.url())).await);
    tell(group.master(), &["ACL", "SETUSER", "default", "-psync", "-sync"]);
    tell(group.master(), &["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    group.master().kill().expect("it runs");
    let lost = Instant::now();
    let (next, took) = lock_after(lost, &two, "b").await;
    println!("granted {took:?} after the failover began");
    assert!(took >= LONGEST, "{took:?}");
    assert!(next.token() > guard.token());
    next.release().await.expect("held");
    // If the failover took longer than the lease, its holder has lost it.
    let other = two.lock("a").ttl(LONGEST).try_now().await.expect("open");
    assert_eq!(other.is_none(), guard.is_held(), "it was reclaimed, or has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_cluster_has_its_mark() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    let locks = open(&cluster.url()).await;
    for n in 0..12 {
        let request = locks.lock(format!("{n}")).ttl(LONGEST).wait(Duration::from_secs(30));
        let guard = request.await.expect("a free lock");
        guard.release().await.expect("held");
    }
    let marks = |node: &testbed::Redis| tell(node, &["KEYS", "*mark"]).lines().next().map(str::to_owned);
    let found: Vec<_> = cluster.nodes().iter().map(marks).collect();
    assert_eq!(found, vec![Some("*1".to_owned()); 3]);
    locks.begin_grace().await.expect("begun at each");
    for n in 0..12 {
        let error = locks.lock(format!("{n}")).ttl(LONGEST).try_now().await.expect_err("nothing is granted");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    }
    for n in 0..12 {
        let guard = locks.lock(format!("{n}")).ttl(LONGEST).wait(Duration::from_secs(30)).await;
        guard.expect("a free lock").release().await.expect("held");
    }
    let other = client(&with_grace(&cluster.url())).await;
    for n in 0..12 {
        let guard = other.lock(format!("{n}")).ttl(LONGEST).try_now().await.expect("open").expect("free");
        guard.release().await.expect("held");
    }
}

/// All locks of this namespace are in one slot, so nothing depends on the other masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_in_one_slot_of_a_cluster_has_one_mark() {
    let group = RedisCluster::start_with_replicas(3, &in_memory()).await;
    let Some(cluster) = if_installed(group) else { return };
    let url = format!("{}?namespace=%7Bx%7D:", cluster.url());
    let locks = open(&url).await;
    let has_mark = |node: &testbed::Redis| tell(node, &["KEYS", "*mark"]).starts_with("*1");
    let marks: Vec<_> = cluster.nodes().iter().map(has_mark).collect();
    assert_eq!(marks.iter().filter(|mark| **mark).count(), 1, "{marks:?}");
    let other = marks.iter().position(|mark| !mark).expect("three masters");
    // What this master may have forgotten is no lock of the namespace.
    tell(&cluster.replicas()[other], &["CLUSTER", "FAILOVER"]);
    until("it takes over", || tell(&cluster.replicas()[other], &["ROLE"]).contains("master")).await;
    cluster.ready().await.expect("all agree on it");
    let new = client(&with_grace(&url)).await;
    assert_eq!(new.grace_left().await.expect("an answer"), None);
    let findings = new.backend().examine().await.expect("an answer");
    let mut of_grace = findings.iter().filter(|one| one.subject == "grace period");
    assert!(of_grace.all(|one| one.severity == Severity::Good), "{findings:?}");
    assert_eq!(new.begin_grace().await.expect("begun at the one"), grace_period(LONGEST));
    let error = new.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    assert!(new.grace_left().await.expect("an answer").is_some());
    let began = Instant::now();
    for client in [&locks, &new] {
        lock_after(began, client, "a").await.0.release().await.expect("held");
    }
}

/// The servers have been up for a grace period, and none was promoted: no lock of a new namespace was
/// forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_namespace_of_an_old_cluster_does_not_wait() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    let set = |seconds: &str| {
        for node in cluster.nodes() {
            tell(node, &["CONFIG", "SET", "repl-backlog-ttl", seconds]);
        }
    };
    tokio::time::sleep(grace_period(LONGEST) + Duration::from_secs(3)).await;
    // One that soon forgets that it was promoted is not believed.
    set("3");
    let locks = client(&with_grace(&cluster.url())).await;
    let error = locks.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    set("3600");
    for n in 0..12 {
        let guard = locks.lock(format!("{n}")).ttl(LONGEST).try_now().await.expect("open").expect("free");
        guard.release().await.expect("held");
    }
}
