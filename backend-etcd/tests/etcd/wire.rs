//! What goes over the network: connections and requests.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::{DistributedLock, ErrorKind, LockName, Moment, Renewal};
use lockwell_etcd::EtcdLock;
use testbed::{Etcd, Proxy};
use tokio::task::JoinSet;

use crate::support::{at_last, backend, options, secs, server, take, waiting_claim};

/// A connection that has ended sends nothing, and does not dial again by itself: the next request is sent
/// once, on a new connection.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_in_doubt_after_a_break() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let client = backend(&etcd.url_via(proxy.addr())).await.expect("a client");
    proxy.cut_existing();
    // The client notices it.
    tokio::time::sleep(secs(1)).await;
    let grant = take(&client, "after", secs(60)).await;
    assert!(grant.claim().in_doubt_until().is_none(), "it was sent twice");
    assert_eq!(proxy.accepted(), 2);
}

/// All who wait lose their connection at the same time, and share the next one.
#[tokio::test(flavor = "multi_thread")]
async fn many_waiters_open_one_new_connection() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let direct = backend(&etcd.url()).await.expect("a client");
    let client = Arc::new(backend(&etcd.url_via(proxy.addr())).await.expect("a client"));
    let mut waiting = JoinSet::new();
    for number in 0..100 {
        let name = format!("lock {number}");
        take(&direct, &name, secs(60)).await;
        let (client, claim) = (Arc::clone(&client), waiting_claim(&name, secs(60), secs(60)));
        waiting.spawn(async move { client.acquire(&claim).await });
    }
    tokio::time::sleep(secs(2)).await;
    assert_eq!(proxy.accepted(), 1);
    // To connect takes longer than the pauses before it.
    proxy.delay(Duration::from_millis(100));
    proxy.cut_existing();
    tokio::time::sleep(secs(4)).await;
    assert!(proxy.accepted() < 10, "{} connections", proxy.accepted());
    assert!(waiting.try_join_next().is_none(), "nobody's wait has ended");
}

/// A dial that fails is followed by a pause that all share, whether they wait or watch what they hold:
/// servers that restart or elect a leader have other things to do.
#[tokio::test(flavor = "multi_thread")]
async fn many_who_need_a_connection_dial_rarely() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let direct = backend(&etcd.url()).await.expect("a client");
    // Longer than the outage, so that nobody gives up in it.
    let url = format!("{}?timeout=30s", etcd.url_via(proxy.addr()));
    let client = Arc::new(backend(&url).await.expect("a client"));
    let mut waiting = JoinSet::new();
    for number in 0..100 {
        let name = format!("waits {number}");
        take(&direct, &name, secs(120)).await;
        let (waits, claim) = (Arc::clone(&client), waiting_claim(&name, secs(120), secs(120)));
        waiting.spawn(async move { waits.acquire(&claim).await.map(drop) });
        let grant = take(&direct, &format!("held {number}"), secs(120)).await;
        let watches = Arc::clone(&client);
        waiting.spawn(async move {
            watches.lost(&grant).await;
            Ok(())
        });
    }
    tokio::time::sleep(secs(2)).await;
    assert_eq!(proxy.accepted(), 1);
    let begun = Moment::now();
    proxy.cut();
    tokio::time::sleep(secs(3)).await;
    proxy.heal();
    let (dialled, outage) = (proxy.accepted() - 1, Moment::now().since(begun));
    // Their longest pause is four times as long.
    let most = outage.as_millis() / 50;
    assert!(dialled > 0 && u128::from(dialled) < most, "{dialled} dials in {outage:?}");
    let end = Moment::now().after(secs(60));
    while proxy.connections() == 0 {
        assert!(!end.has_passed(), "no connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(secs(2)).await;
    assert_eq!(proxy.connections(), 1);
    assert!(waiting.try_join_next().is_none(), "somebody's wait has ended");
}

/// A client whose requests have little time, the proxy before it, and the lock that it has asked for.
async fn with_little_time(etcd: &Etcd) -> (Proxy, EtcdLock, LockName) {
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let url = format!("{}?timeout=200ms", etcd.url_via(proxy.addr()));
    let client = at_last(|| backend(&url)).await;
    let name = LockName::new("a").expect("a name");
    at_last(|| client.inspect(&name)).await;
    (proxy, client, name)
}

/// Each caller has less time than a connection may be silent for. All together they notice that it hangs.
#[tokio::test(flavor = "multi_thread")]
async fn callers_with_little_time_leave_a_connection_that_hangs() {
    let Some(etcd) = server(&options()).await else { return };
    let (proxy, client, name) = with_little_time(&etcd).await;
    proxy.hold_back();
    let error = client.inspect(&name).await.expect_err("the connection hangs");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    at_last(|| client.inspect(&name)).await;
}

/// Who has too little time for a dial leaves it to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_made_although_nobody_waits_for_it() {
    let Some(etcd) = server(&options()).await else { return };
    let (proxy, client, name) = with_little_time(&etcd).await;
    let before = proxy.accepted();
    proxy.delay(Duration::from_millis(400));
    proxy.cut_existing();
    let error = client.inspect(&name).await.expect_err("a dial takes longer");
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    // What is under way stays late.
    proxy.delay(Duration::ZERO);
    at_last(|| client.inspect(&name)).await;
    assert_eq!(proxy.accepted(), before + 1);
}

/// The kernel asks from time to time whether the other side of an idle connection is there.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_kept_alive() {
    const ESTABLISHED: &str = "01";
    const KEEP_ALIVE: &str = "02";
    let Some(etcd) = server(&options()).await else { return };
    // Nobody else is connected to it.
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let client = backend(&etcd.url_via(proxy.addr())).await.expect("a client");
    let peer = format!(":{:04X}", proxy.addr().port());
    let end = Moment::now().after(secs(60));
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the sockets of the system");
        // Number, own address, peer, state, bytes in queues, timer.
        let sockets = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = sockets.filter(|words| words.len() > 5 && words[2].ends_with(&peer));
        let timers: Vec<_> =
            ours.filter(|words| words[3] == ESTABLISHED).map(|words| words[5].to_owned()).collect();
        // It has another timer while something is under way.
        if !timers.is_empty() && timers.iter().all(|timer| timer.starts_with(KEEP_ALIVE)) {
            break;
        }
        assert!(!end.has_passed(), "{timers:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.close().await;
}

/// However many locks are held and watched, a runtime has one connection.
#[tokio::test(flavor = "multi_thread")]
async fn many_locks_share_one_connection() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let client = backend(&etcd.url_via(proxy.addr())).await.expect("a client");
    let mut grants = Vec::new();
    for number in 0..150 {
        grants.push(take(&client, &format!("lock {number}"), secs(60)).await);
    }
    let watching = async {
        let all = grants.iter().map(|grant| client.lost(grant));
        futures_util::future::join_all(all).await
    };
    let renewing = async {
        tokio::time::sleep(secs(1)).await;
        client.renew(&grants, Moment::now().after(secs(10))).await
    };
    let renewals = tokio::select! {
        _ = watching => panic!("nothing is lost"),
        renewals = renewing => renewals,
    };
    assert!(renewals.iter().all(|it| matches!(it, Renewal::Renewed(_))), "{renewals:?}");
    assert_eq!(proxy.connections(), 1);
}
