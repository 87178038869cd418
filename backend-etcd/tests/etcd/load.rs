//! Many requests: logins of a fleet, long queues, bursts, and members that are far from each other.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{Claim, DistributedLock, ErrorKind, LockName, Mode, Moment, Wait};
use testbed::{Direction, Etcd, EtcdCluster, Proxy, if_installed};
use tokio::task::JoinSet;

use crate::rights::{set_password, with_users};
use crate::support::{at_last, backend, locks, options, secs, server, take};

/// What a counter of the server shows.
fn counter(etcd: &Etcd, begins: &str) -> u64 {
    let metrics = etcd.call("/metrics", "").expect("an answer");
    let line = metrics.lines().find(|line| line.starts_with(begins));
    let number = line.and_then(|line| line.rsplit(' ').next()).map_or(Ok(0.0), str::parse::<f64>);
    format!("{:.0}", number.expect("a number")).parse().expect("a number")
}

/// How many logins the server has been asked for.
fn logins(etcd: &Etcd) -> u64 {
    counter(etcd, "grpc_server_started_total{grpc_method=\"Authenticate\"")
}

/// Each login costs this server a quarter of a second. All clients of a process share one, for the keeper as
/// well, and one that is late is not asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_logs_in_rarely() {
    let Some(etcd) = server(&options().setting("bcrypt-cost", "12")).await else { return };
    with_users(&etcd);
    let before = logins(&etcd);
    let url = format!("etcd://locks:secret@{}/lockwell?timeout=20s", etcd.addr());
    let mut held = Vec::new();
    for number in 0..40 {
        let locks = locks(&url).await.expect("a client");
        let name = format!("member {number}");
        let guard = locks.lock(&name).ttl(secs(24)).await.expect("a free lock");
        held.push((locks, guard));
    }
    assert_eq!(logins(&etcd) - before, 1);
    // All of them notice it with their next renewals, or sooner, with the watch of a key: on a fast machine that
    // begins after this. Root logs in as well.
    let before = logins(&etcd) + 1;
    set_password(&etcd, "locks", "secret");
    tokio::time::sleep(secs(12)).await;
    assert!(held.iter().all(|(_, guard)| guard.is_held()));
    assert!((1..=3).contains(&(logins(&etcd) - before)), "{} logins", logins(&etcd) - before);
    for (_, guard) in held {
        guard.release().await.expect("it is held");
    }
}

/// The pauses between them double.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_refused_is_repeated_rarely() {
    let Some(etcd) = server(&options()).await else { return };
    with_users(&etcd);
    let url = format!("etcd://locks:secret@{}/lockwell", etcd.addr());
    let client = backend(&url).await.expect("a client");
    set_password(&etcd, "locks", "another");
    let before = logins(&etcd);
    let (end, name) = (Moment::now().after(secs(10)), LockName::new("a").expect("a name"));
    let mut refused = 0;
    while !end.has_passed() {
        let error = client.inspect(&name).await.expect_err("a wrong password");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!((1..8).contains(&(logins(&etcd) - before)), "{} logins", logins(&etcd) - before);
    assert!(refused > 20, "{refused}: the others do not wait for a login");
    set_password(&etcd, "locks", "secret");
    at_last(|| client.inspect(&name)).await;
}

/// While a permit waits for the one before it, it does not read the others before that.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_permits_do_not_read_the_whole_queue() {
    const LIMIT: u32 = 100;
    const WAITERS: usize = 30;
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let holder = backend(&etcd.url()).await.expect("a client");
    let permit = |wait, ttl| {
        let mode = Mode::from_code(LIMIT.into()).expect("a limit");
        Claim::new(LockName::new("pool").expect("a name"), mode, ttl, wait, "test".into())
    };
    for _ in 0..LIMIT {
        holder.acquire(&permit(Wait::No, secs(120))).await.expect("an answer").expect("a free permit");
    }
    let client = Arc::new(backend(&etcd.url_via(proxy.addr())).await.expect("a client"));
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS {
        // It looks every second.
        let (client, claim) = (Arc::clone(&client), permit(Wait::Forever, secs(3)));
        waiting.spawn(async move { client.acquire(&claim).await });
    }
    let name = LockName::new("pool").expect("a name");
    let end = Moment::now().after(secs(60));
    while holder.inspect(&name).await.expect("an answer").waiters < WAITERS {
        assert!(!end.has_passed(), "they do not wait");
    }
    tokio::time::sleep(secs(2)).await;
    let looks = || counter(&etcd, "grpc_server_started_total{grpc_method=\"Txn\"");
    let (before, bytes) = (looks(), proxy.bytes(Direction::ToClient));
    tokio::time::sleep(secs(6)).await;
    let (looks, bytes) = (looks() - before, proxy.bytes(Direction::ToClient) - bytes);
    assert!(looks > 60, "{looks} looks");
    // A key has more than 60 bytes.
    let all = u64::from(LIMIT) * 60;
    assert!(bytes / looks < all / 3, "{} bytes for each look", bytes / looks);
    assert!(waiting.try_join_next().is_none(), "nobody's wait has ended");
    // The first one learns of a release.
    holder.force_release(&name).await.expect("an answer");
    let granted = tokio::time::timeout(secs(20), waiting.join_next()).await.expect("a grant").expect("one");
    assert!(granted.expect("no panic").expect("an answer").is_some());
}

/// More than the server can answer in time. What is too much is refused, and what was granted is kept.
#[tokio::test(flavor = "multi_thread")]
async fn deep_a_burst_takes_no_granted_lock_with_it() {
    const BURST: usize = 10_000;
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let locks = locks(&format!("{}?timeout=3s", etcd.url_via(proxy.addr()))).await.expect("a client");
    // A server that is far away, so that it does not depend on the machine that there are too many.
    proxy.delay(Duration::from_millis(50));
    let mut asking = JoinSet::new();
    for number in 0..BURST {
        let request = locks.lock(format!("lock {number}")).ttl(secs(20)).wait(secs(60));
        asking.spawn(request.patience(Duration::ZERO).into_future());
    }
    let (mut held, mut refused) = (Vec::new(), 0);
    while let Some(asked) = asking.join_next().await {
        match asked.expect("no panic") {
            Ok(guard) => held.push(guard),
            Err(error) if error.kind() == ErrorKind::Overloaded => refused += 1,
            // On a busy machine an answer can be late as well.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}"),
        }
    }
    assert!(!held.is_empty() && refused > 0, "{} granted, {refused} refused", held.len());
    tokio::time::sleep(secs(25)).await;
    let lost = held.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {}", held.len());
}

/// A follower that is far from its leader asks it about one renewal of a stream after the other.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_kept_by_a_follower_that_is_far_from_its_leader() {
    const LOCKS: usize = 400;
    let started = EtcdCluster::start_apart(3, &options()).await;
    let Some((cluster, proxies)) = if_installed(started) else { return };
    let leader = cluster.leader().await.expect("a leader");
    let follower = cluster.addresses()[(leader + 1) % 3];
    let locks = locks(&cluster.url_via(&[follower])).await.expect("a client");
    for proxy in &proxies {
        proxy.delay(Duration::from_micros(12_500));
    }
    let mut taking = JoinSet::new();
    for number in 0..LOCKS {
        let (locks, name) = (locks.clone(), format!("lock {number}"));
        taking.spawn(async move { locks.lock(&name).ttl(secs(6)).await });
    }
    let taken = taking.join_all().await;
    let held: Vec<_> = taken.into_iter().map(|guard| guard.expect("a free lock")).collect();
    tokio::time::sleep(secs(15)).await;
    let lost = held.iter().filter(|guard| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {LOCKS}");
}

/// A try that is refused writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_writes_nothing() {
    let Some(etcd) = server(&options()).await else { return };
    let client = backend(&etcd.url()).await.expect("a client");
    let grant = take(&client, "held", secs(60)).await;
    let proposals = || counter(&etcd, "etcd_server_proposals_committed_total ");
    // A new server has something of its own to write.
    let mut is_silent = false;
    for _ in 0..20 {
        let before = proposals();
        for mode in [Mode::Exclusive, Mode::Shared] {
            let name = grant.claim().name().clone();
            let claim = Claim::new(name, mode, secs(60), Wait::No, "test".into());
            assert!(client.acquire(&claim).await.expect("an answer").is_none());
        }
        is_silent |= proposals() == before;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(is_silent, "each try is written");
}
