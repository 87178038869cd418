//! Members that are stopped or cut off.

use std::time::{Duration, Instant};

use lockwell_core::{DistributedLock, ErrorKind, Grant, LeaseState, Moment, Renewal, Requirement, Severity};
use lockwell_etcd::EtcdGuarded;
use testbed::{EtcdCluster, HungSyncs, is_installed};

use crate::support::{at_last, backend, claim, cluster, locks, options, secs, server, take};

/// The address of one member alone.
fn only(cluster: &EtcdCluster, member: usize) -> String {
    cluster.url_via(&[cluster.addresses()[member]])
}

/// The lease of a claim has the first 63 bits of its owner id.
fn lease_id(grant: &Grant) -> u128 {
    grant.claim().owner().as_u128() >> 65
}

/// Waits until another member leads.
async fn leader_after(cluster: &EtcdCluster, old: usize) -> usize {
    let begun = Instant::now();
    loop {
        if let Ok(leader) = cluster.leader().await
            && leader != old
        {
            return leader;
        }
        assert!(begun.elapsed() < secs(60), "no other leader");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_costs_no_lock() {
    let Some(cluster) = cluster().await else { return };
    let locks = locks(&cluster.url()).await.expect("a client");
    let guard = locks.lock("kept").ttl(secs(20)).await.expect("a free lock");
    let leader = cluster.leader().await.expect("a leader");
    cluster.members()[leader].pause().expect("it runs");
    leader_after(&cluster, leader).await;
    // A renewal of each of the two members that are left.
    tokio::time::sleep(secs(14)).await;
    assert_eq!(guard.lease_state(), LeaseState::Held);
    let next = locks.lock("another").ttl(secs(20)).wait(secs(20)).await.expect("a lock of the new leader");
    next.release().await.expect("an answer");
    cluster.members()[leader].resume().expect("it is stopped");
    guard.release().await.expect("the lock is held");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_majority_keeps_no_lock() {
    let Some(cluster) = cluster().await else { return };
    let leader = cluster.leader().await.expect("a leader");
    let alone = backend(&only(&cluster, leader)).await.expect("a client of the leader");
    let grant = take(&alone, "alone", secs(10)).await;
    let followers: Vec<_> = (0..3).filter(|member| *member != leader).collect();
    for follower in &followers {
        cluster.members()[*follower].pause().expect("it runs");
    }
    // The leader does not know yet that it is alone, and would answer a keep-alive.
    let renewals = alone.renew(&[grant], Moment::now().after(secs(3))).await;
    assert!(matches!(renewals[..], [Renewal::Unknown(_)]), "{renewals:?}");
    let error = alone.inspect(&lockwell_core::LockName::new("alone").expect("a name")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:#}");
    for follower in &followers {
        cluster.members()[*follower].resume().expect("it is stopped");
    }
}

/// A check of the lock without a write is no answer of one member alone, whose data may be old.
#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_write_without_writes_asks_the_majority() {
    let Some(cluster) = cluster().await else { return };
    let leader = cluster.leader().await.expect("a leader");
    let follower = (leader + 1) % 3;
    let url = format!("{}?timeout=1s", only(&cluster, follower));
    let client = at_last(|| backend(&url)).await;
    let grant = take(&client, "checked", secs(60)).await;
    let check = || grant.guarded().expect("a grant of etcd").commit();
    at_last(check).await;
    let others: Vec<_> = (0..3).filter(|member| *member != follower).collect();
    for member in &others {
        cluster.members()[*member].pause().expect("it runs");
    }
    let error = check().await.expect_err("nobody knows whether it is held");
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error:#}");
    for member in &others {
        cluster.members()[*member].resume().expect("it is stopped");
    }
    cluster.ready().await.expect("all three");
    let direct = backend(&cluster.url()).await.expect("a client");
    direct.force_release(grant.claim().name()).await.expect("an answer");
    let begun = Instant::now();
    while let Err(error) = check().await {
        if error.kind() == ErrorKind::Lost {
            return;
        }
        assert!(begun.elapsed() < secs(60), "{error:#}");
    }
    panic!("it is not held");
}

/// A leader whose disk hangs answers keep-alives while another one leads, whose leases end without them. A
/// client of that leader must not hold a lock that others get.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_disk_hangs_keeps_no_lock() {
    let Some(cluster) = cluster().await else { return };
    if !is_installed(HungSyncs::installed()) {
        return;
    }
    let leader = cluster.leader().await.expect("a leader");
    let alone =
        backend(&format!("{}?timeout=1s", only(&cluster, leader))).await.expect("a client of the leader");
    let grant = take(&alone, "mine", secs(4)).await;
    let everywhere = locks(&cluster.url()).await.expect("a client");
    let kept = everywhere.lock("kept").ttl(secs(6)).await.expect("a free lock");
    let hung = cluster.members()[leader].hang_log().expect("a tracer");
    // It hangs with the first write.
    let write = claim("write", secs(4));
    let (written, next) = tokio::join!(alone.acquire(&write), leader_after(&cluster, leader));
    assert_eq!(written.expect_err("the leader cannot write").kind(), ErrorKind::Unreachable);
    let keep_alive = || {
        let request = format!("{{\"ID\":\"{}\"}}", lease_id(&grant));
        cluster.members()[leader].call("/v3/lease/keepalive", &request).expect("an answer")
    };
    let renew = || alone.renew(std::slice::from_ref(&grant), Moment::now().after(secs(1)));
    let others = backend(&only(&cluster, next)).await.expect("a client of the new leader");
    let begun = Instant::now();
    // Until the new leader has ended the lease that the old one keeps alive.
    while others.acquire(&claim("mine", secs(4))).await.expect("an answer").is_none() {
        let answer = keep_alive();
        // Newer releases notice that they do not lead any more.
        let is_extended = answer.contains("\"TTL\":\"4\"");
        assert!(is_extended || answer.contains("not a primary lessor"), "the test shows nothing: {answer}");
        let renewals = renew().await;
        assert!(matches!(renewals[..], [Renewal::Unknown(_)]), "{renewals:?}");
        assert!(begun.elapsed() < secs(60), "the lease does not end");
    }
    let renewals = renew().await;
    assert!(matches!(renewals[..], [Renewal::Unknown(_)]), "{renewals:?}");
    // A client that can go elsewhere has done so.
    assert!(kept.is_held(), "{:?}", kept.lease_state());
    // Before the old leader goes on: old releases revoke leases then that have been extended elsewhere.
    kept.release().await.expect("the lock is held");
    drop(hung);
    cluster.ready().await.expect("all three");
    let renewals = renew().await;
    assert!(matches!(renewals[..], [Renewal::Lost]), "{renewals:?}");
}

/// `failover-safe` is not promised where an old leader may end leases.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_promised_depends_on_the_release() {
    let Some(cluster) = cluster().await else { return };
    let lock = backend(&cluster.url()).await.expect("a client");
    let findings = lock.examine().await.expect("an answer");
    let version = findings.iter().find(|finding| finding.subject == "version").expect("all may ask");
    let is_safe = lock.capabilities().promises(Requirement::FailoverSafe);
    assert_eq!(is_safe, version.severity == Severity::Good, "{version:?}");
    let Some(alone) = server(&options()).await else { return };
    let lock = backend(&alone.url()).await.expect("a client");
    assert!(lock.capabilities().promises(Requirement::FailoverSafe), "nobody takes over from one member");
}

/// A client of a member that is cut off goes to another one, and loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_answer_is_left() {
    let Some(cluster) = cluster().await else { return };
    let locks = locks(&cluster.url()).await.expect("a client");
    let guard = locks.lock("kept").ttl(secs(15)).await.expect("a free lock");
    // Each in turn, and so the one that the client uses.
    for member in cluster.members() {
        member.pause().expect("it runs");
        tokio::time::sleep(secs(7)).await;
        assert!(guard.is_held(), "{:?}", guard.lease_state());
        member.resume().expect("it is stopped");
        cluster.ready().await.expect("all three");
    }
    guard.release().await.expect("the lock is held");
}
