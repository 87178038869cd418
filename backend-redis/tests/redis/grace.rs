//! A server that may have forgotten its last grants grants nothing until their leases have ended
//! (`durability=grace`).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwell_core::backend::grace_period;
use lockwell_core::{ErrorKind, LockGuard, Locks, Severity};
use testbed::{Durability, Redis, RedisCluster, RedisSentinel, if_installed};

use crate::servers::{client, in_memory, is_redis_6, on_disk, redis, redis_with, refusal, tell, until};

/// The shortest that there may be.
const LONGEST: Duration = Duration::from_secs(4);

fn with_grace(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    // A group of servers has grace periods by default.
    let grace = if url.starts_with("redis:") { "durability=grace&" } else { "" };
    format!("{url}{sign}{grace}longest_ttl=4s")
}

/// A client of a server that has just been started, and that is known to be new.
async fn open(url: &str) -> Locks {
    let locks = client(&with_grace(url)).await;
    locks.end_grace().await.expect("it grants locks");
    locks
}

/// A server becomes a replica, and a master again: it keeps its data, and its history is another.
fn promote(server: &Redis) {
    tell(server, &["REPLICAOF", "127.0.0.1", "1"]);
    tell(server, &["REPLICAOF", "NO", "ONE"]);
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
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
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

/// Whoever knows that it is new says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_known_to_be_new_grants_at_once() {
    let Some(server) = redis().await else { return };
    let (early, late) = (client(&with_grace(&server.url())).await, client(&with_grace(&server.url())).await);
    let error = early.lock("a").ttl(LONGEST).try_now().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    late.end_grace().await.expect("it grants locks");
    late.lock("a").ttl(LONGEST).try_now().await.expect("open").expect("free").release().await.expect("held");
    // Who has seen the mark before sees it open.
    tokio::time::sleep(Duration::from_millis(200)).await;
    early.lock("a").ttl(LONGEST).try_now().await.expect("open").expect("free").release().await.expect("held");
    let other = client(&format!("{}?namespace=other:", server.url())).await;
    let error = other.end_grace().await.expect_err("without the option");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
}

/// One after the other waits for a second. Each counts, and nobody has to live for a grace period.
async fn short_lives(url: &str, began: Instant) -> Duration {
    loop {
        let locks = client(&with_grace(url)).await;
        let granted = locks.lock("a").ttl(LONGEST).wait(Duration::from_secs(1)).await;
        let took = began.elapsed();
        let is_granted = granted.is_ok();
        if let Ok(guard) = granted {
            guard.release().await.expect("held");
        }
        locks.close().await.expect("nothing is left");
        if is_granted {
            return took;
        }
        assert!(took < Duration::from_secs(30), "never granted to clients that live a second");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_live_a_second_end_a_period_together() {
    let Some(server) = redis().await else { return };
    let took = short_lives(&server.url(), Instant::now()).await;
    println!("granted after {took:?}");
    assert!(took >= LONGEST && took < LONGEST * 3, "{took:?}");
}

/// What several have seen at the same time counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_on_many_hosts_count_no_faster_than_time_passes() {
    let Some(server) = redis().await else { return };
    let began = Instant::now();
    let url = server.url();
    let took = join_all((0..8).map(|_| short_lives(&url, began))).await;
    println!("granted after {took:?}");
    assert!(took.iter().all(|took| *took >= LONGEST), "{took:?}");
}

/// A holder looks at the mark with its renewals, and counts. So there is no wait left for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_only_renews_counts() {
    let Some(server) = redis().await else { return };
    let one = open(&server.url()).await;
    let kept = one.lock("kept").ttl(LONGEST).await.expect("a free lock");
    promote(&server);
    tokio::time::sleep(LONGEST * 2).await;
    let two = client(&with_grace(&server.url())).await;
    two.lock("a").ttl(LONGEST).try_now().await.expect("open").expect("free").release().await.expect("held");
    kept.release().await.expect("held");
}

/// The server has the grants of its files, as before, and so an open mark: that of an earlier time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_period_outlives_an_older_mark_that_comes_back() {
    const MARK: &str = "lockwell:\u{1f}mark";
    let Some(server) = redis().await else { return };
    let (one, two) = (open(&server.url()).await, client(&with_grace(&server.url())).await);
    let answer = tell(&server, &["GET", MARK]);
    let older = answer.split("\r\n").nth(1).expect("a mark").to_owned();
    let begun = Instant::now();
    two.begin_grace().await.expect("begun");
    let is_closed = async |locks: &Locks, who: &str| {
        let error = locks.lock("a").ttl(LONGEST).try_now().await.map(drop).expect_err(who);
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    };
    tokio::time::sleep(Duration::from_millis(1100)).await;
    is_closed(&one, "it is told").await;
    tell(&server, &["SET", MARK, &older]);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    is_closed(&one, "it remembers").await;
    is_closed(&client(&with_grace(&server.url())).await, "it finds what that one has made of it").await;
    let (guard, _) = lock_after(begun, &one, "a").await;
    assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
    guard.release().await.expect("held");
}

/// As when the default is adopted one program after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_periods_grants_nothing_where_others_have() {
    let Some(server) = redis().await else { return };
    let (old, other) = (client(&server.url()).await, client(&server.url()).await);
    let guard = old.lock("a").ttl(LONGEST).await.expect("a free lock");
    let waiting = tokio::spawn(other.lock("a").wait(Duration::from_secs(20)).into_future());
    until("it waits", || !tell(&server, &["KEYS", "*queue*"]).starts_with("*0")).await;
    let new = open(&server.url()).await;
    promote(&server);
    // As a failover does.
    tell(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    tell(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let error = loop {
        match old.lock("b").try_now().await {
            Ok(guard) => panic!("granted in a grace period of others: {guard:?}"),
            Err(error) if error.kind() == ErrorKind::Unreachable => (),
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    guard.release().await.expect("it is released all the same");
    let error = waiting.await.expect("no panic").map(drop).expect_err("it is not granted");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(new.inspect("a").await.expect("an answer").holders.is_empty());
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
    promote(&server);
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
    {
        let locks = &reader;
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
    let writer = client(&with_grace(&server.url())).await;
    let status = writer.inspect("a").await.expect("an answer");
    assert!(status.unknown_for.is_some() && !status.is_free(), "{status:?}");
    let error = reader.lock("a").ttl(LONGEST).try_now().await.expect_err("it may only read");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    let guard = writer.lock("a").ttl(LONGEST).wait(Duration::from_secs(30)).await.expect("a free lock");
    for locks in [&reader, &writer] {
        let status = locks.inspect("a").await.expect("an answer");
        assert!(status.is_held() && status.unknown_for.is_none(), "{status:?}");
        assert!(locks.inspect("b").await.expect("an answer").is_free());
    }
    // Who holds the lock is known, and whether others do is not.
    promote(&server);
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

/// However long the servers have been up: a replica that was promoted before it had any data looks the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_namespace_of_an_old_cluster_waits_unless_somebody_knows_that_it_is_new() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    tokio::time::sleep(grace_period(LONGEST) + Duration::from_secs(3)).await;
    let locks = client(&with_grace(&cluster.url())).await;
    for n in 0..12 {
        let error = locks.lock(format!("{n}")).ttl(LONGEST).try_now().await.expect_err("nothing is granted");
        assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    }
    locks.end_grace().await.expect("they grant locks");
    for n in 0..12 {
        let guard = locks.lock(format!("{n}")).ttl(LONGEST).try_now().await.expect("open").expect("free");
        guard.release().await.expect("held");
    }
}

/// A replica that is promoted before it has received anything. Its first own replica makes it forget that it
/// was promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_promoted_without_any_data_is_not_new() {
    let options = in_memory().durability(Durability::OsCache);
    let Some(group) = if_installed(RedisSentinel::start_with(&options).await) else { return };
    let one = open(&group.url()).await;
    tell(group.master(), &["ACL", "SETUSER", "default", "-psync", "-sync"]);
    let replica = group.replica();
    replica.kill().expect("it runs");
    replica.restart().await.expect("it starts again");
    until("it is a replica", || tell(replica, &["ROLE"]).contains("slave")).await;
    // A lease ends, and a grace period, before the master dies: by then this server has been up for so long.
    tokio::time::sleep(grace_period(LONGEST) + Duration::from_secs(2)).await;
    let guard = one.lock("a").ttl(LONGEST).await.expect("a free lock");
    group.master().kill().expect("it runs");
    let lost = Instant::now();
    until("it takes over", || tell(replica, &["ROLE"]).contains("master")).await;
    let second = Redis::start_replica(replica.addr(), &in_memory()).await.expect("a second replica");
    let info = || tell(replica, &["INFO", "replication"]);
    until("it has forgotten that", || info().contains("master_replid2:0000")).await;
    let two = client(&with_grace(&group.url())).await;
    let (next, took) = lock_after(lost, &two, "b").await;
    println!("granted {took:?} after the failover began");
    let other = two.lock("a").ttl(LONGEST).try_now().await.expect("open");
    assert_eq!(other.is_none(), guard.is_held(), "it was reclaimed, or has ended");
    assert!(took >= LONGEST, "{took:?}");
    next.release().await.expect("held");
    drop(second);
}
