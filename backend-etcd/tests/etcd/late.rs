//! Copies of requests that arrive late.

use std::sync::Arc;
use std::time::Instant;

use lockwell_core::{DistributedLock, ErrorKind, Grant};
use lockwell_etcd::{EtcdGuarded, EtcdLock};
use testbed::{Direction, Etcd, Proxy};

use crate::support::{backend, locks, options, secs, server, take, waiting_claim};

/// Waits until another claim waits for the lock of this grant.
async fn waits(direct: &EtcdLock, held: &Grant) {
    let begun = Instant::now();
    while direct.inspect(held.claim().name()).await.expect("an answer").waiters < 1 {
        assert!(begun.elapsed() < secs(60), "it does not wait");
    }
}

/// The waiter finds that its lease has ended, and its request to end what is left of it is kept on its way.
async fn keep_a_revocation(etcd: &Etcd, proxy: &Proxy, lease: u128) {
    let begun = Instant::now();
    // As if the waiter had been paused for longer than its lease.
    proxy.hold(Direction::ToClient);
    etcd.call("/v3/lease/revoke", &format!("{{\"ID\":\"{lease}\"}}")).expect("an answer");
    let sent = proxy.bytes(Direction::ToServer);
    while proxy.bytes(Direction::ToServer) == sent {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert!(begun.elapsed() < secs(120), "it does not look");
    }
    // The next request on this connection is the one that ends the lease.
    proxy.hold_back_only(Direction::ToServer);
    proxy.pass(Direction::ToClient);
    // Longer than a request waits for its answer.
    tokio::time::sleep(secs(4)).await;
}

/// A request to end a lease was repeated, and its first copy arrives when the claim would have a new lease
/// with the same id, and the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_revocation_takes_no_lock_from_its_holder() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let direct = backend(&etcd.url()).await.expect("a client");
    let first = take(&direct, "late", secs(60)).await;
    let client = Arc::new(backend(&etcd.url_via(proxy.addr())).await.expect("a client"));
    let claim = waiting_claim("late", secs(6), secs(60));
    let acquiring = tokio::spawn({
        let (client, claim) = (Arc::clone(&client), claim.clone());
        async move { client.acquire(&claim).await }
    });
    waits(&direct, &first).await;
    keep_a_revocation(&etcd, &proxy, claim.owner().as_u128() >> 65).await;
    direct.release(first.claim()).await.expect("an answer");
    let acquired = acquiring.await.expect("no panic");
    proxy.deliver();
    tokio::time::sleep(secs(1)).await;
    match acquired {
        Ok(grant) => {
            assert!(grant.is_some(), "the wait is not over");
            assert!(direct.inspect(claim.name()).await.expect("an answer").is_held(), "the lock is free");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}"),
    }
}

/// The claim cannot go on then, and another one leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_outlives_a_revocation_that_may_be_late() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let direct = backend(&etcd.url()).await.expect("a client");
    let first = take(&direct, "led", secs(60)).await;
    let candidate = locks(&etcd.url_via(proxy.addr())).await.expect("a client");
    let campaigning = tokio::spawn(async move {
        candidate.campaign("led").ttl(secs(6)).run_as_leader(async |held| held.token()).await
    });
    waits(&direct, &first).await;
    let leases = etcd.call("/v3/lease/leases", "{}").expect("an answer");
    let mut leases = leases.split(|c: char| !c.is_ascii_digit()).filter_map(|id| id.parse().ok());
    let leader = first.claim().owner().as_u128() >> 65;
    // The answer also has the id of the cluster and such, in a header before them.
    let waiter = leases.rfind(|id: &u128| *id != leader).expect("its lease");
    keep_a_revocation(&etcd, &proxy, waiter).await;
    direct.release(first.claim()).await.expect("an answer");
    let led = campaigning.await.expect("no panic").expect("another claim leads");
    assert!(led > first.token());
    proxy.deliver();
}

/// A write whose answer is missing is not sent again: one of the copies might arrive after a later write.
#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_write_is_sent_once() {
    let Some(etcd) = server(&options()).await else { return };
    let proxy = Proxy::start(etcd.addr()).await.expect("a proxy");
    let client = backend(&etcd.url_via(proxy.addr())).await.expect("a client");
    let grant = take(&client, "guarded", secs(60)).await;
    let write = |value: &str| grant.guarded().expect("a grant of etcd").put("app/row", value);
    proxy.hold_back_only(Direction::ToServer);
    let error = write("1").commit().await.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    let row = || etcd.call("/v3/kv/range", "{\"key\":\"YXBwL3Jvdw==\"}").expect("an answer");
    assert!(!row().contains("kvs"), "{}", row());
    write("2").commit().await.expect("a new connection");
    assert!(row().contains("\"Mg==\""), "{}", row());
}
