//! What goes over the network: connections and requests.

use lockwell_core::{DistributedLock, Moment, Renewal};
use testbed::Proxy;

use crate::support::{backend, options, secs, server, take};

/// A connection that has ended sends nothing, and does not dial again by itself: the next request is sent once,
/// on a new connection.
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
