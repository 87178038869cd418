//! A server that has reached its `maxmemory`, with `noeviction`: it refuses what needs memory, and keeps what
//! it has.

use std::time::Duration;

use lockwell_core::{ErrorKind, LeaseState, Mode, Renewal};
use testbed::Redis;

use crate::asking::{claim_as, permit};
use crate::redlock::nodes;
use crate::servers::{backend, client, on_disk, redis, redlock_url, soon, tell, until};

fn fill(server: &Redis) {
    tell(server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    tell(server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert!(server.command(&["SET", "more", "x"]).expect("an answer").starts_with("-OOM"));
}

const MODES: [fn() -> Mode; 3] = [|| Mode::Exclusive, || Mode::Shared, || permit(2)];

/// Renewals, downgrades and releases need no more memory.
#[tokio::test]
async fn those_who_hold_a_lock_keep_it() {
    let Some(server) = redis().await else { return };
    let one = backend(&server.url()).await.expect("a connection");
    let mut grants = Vec::new();
    for (n, mode) in MODES.into_iter().enumerate() {
        let claim = claim_as(mode(), &format!("{n}"), Duration::from_secs(10));
        grants.push(one.acquire(&claim).await.expect("an answer").expect("a free lock"));
    }
    let writer = claim_as(Mode::Exclusive, "writer", Duration::from_secs(10));
    let writer = one.acquire(&writer).await.expect("an answer").expect("a free lock");
    fill(&server);
    for grant in &grants {
        // Each in a call of its own: nothing before it has written.
        let renewed = one.renew(std::slice::from_ref(grant), soon()).await;
        assert!(matches!(renewed[..], [Renewal::Renewed(_)]), "{grant:?}: {renewed:?}");
    }
    let reader = one.downgrade(&writer).await.expect("it needs no memory");
    assert!(matches!(one.renew(&[reader], soon()).await[..], [Renewal::Renewed(_)]));
    let error = one.acquire(&claim_as(Mode::Shared, "more", Duration::from_secs(1))).await.expect_err("full");
    assert!(
        error.kind() == ErrorKind::Misconfigured && format!("{error:#}").contains("maxmemory"),
        "{error:#}"
    );
    for grant in grants {
        one.release(grant.claim()).await.expect("it needs no memory");
    }
}

/// A server needs its mark again, as after a failover or when slots have moved.
#[tokio::test]
async fn a_mark_is_set_at_a_full_server() {
    let Some(server) = redis().await else { return };
    let locks = client(&format!("{}?durability=grace&longest_ttl=4s", server.url())).await;
    let ttl = Duration::from_secs(4);
    let guard = locks.read("a").ttl(ttl).wait(Duration::from_secs(60)).await.expect("after the grace period");
    fill(&server);
    tell(&server, &["DEL", "lockwell:\u{1f}mark"]);
    // Until the server is asked again.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(locks.inspect("a").await.expect("it needs no memory").is_held());
    guard.release().await.expect("it needs no memory");
    assert!(tell(&server, &["EXISTS", "lockwell:\u{1f}mark"]).starts_with(":1"));
}

/// With grace periods a forced release begins with a note that nobody can reclaim the lock.
#[tokio::test]
async fn a_lock_is_freed_by_force_at_a_full_server() {
    let Some(server) = redis().await else { return };
    let locks = client(&format!("{}?durability=grace&longest_ttl=4s", server.url())).await;
    let mut guards = Vec::new();
    for request in [locks.lock("writer"), locks.read("reader"), locks.permit("permit", 2)] {
        let request = request.ttl(Duration::from_secs(4)).wait(Duration::from_secs(60));
        guards.push(request.await.expect("after the grace period"));
    }
    fill(&server);
    for guard in &guards {
        let name = guard.name().as_str();
        assert_eq!(locks.force_release(name).await.expect("it needs no memory"), 1, "{name}");
        assert!(!locks.inspect(name).await.expect("an answer").is_held(), "{name}");
    }
}

#[tokio::test]
async fn readers_at_the_nodes_of_redlock_keep_their_lock() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let locks = client(&redlock_url(&nodes)).await;
    let guard = locks.read("a").ttl(Duration::from_secs(6)).await.expect("a free lock");
    nodes.iter().for_each(fill);
    let renewals = locks.stats().renewals;
    until("renewals", || locks.stats().renewals > renewals + 2).await;
    assert_eq!(guard.lease_state(), LeaseState::Held);
    guard.release().await.expect("held");
}

/// A lease that cannot be renewed since the server refuses it: what is known of that is told with the loss.
#[tokio::test]
async fn a_loss_names_its_cause() {
    let Some(server) = redis().await else { return };
    let locks = client(&server.url()).await;
    let guard = locks.read("a").ttl(Duration::from_secs(3)).await.expect("a free lock");
    // Renewals are refused as they are where memory is short: by the server, for a reason that it says.
    tell(&server, &["ACL", "SETUSER", "default", "-pexpire"]);
    tokio::time::timeout(Duration::from_secs(30), guard.lost()).await.expect("its lease ends");
    // The server's lease ends a little later than the validity.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let error = guard.release().await.expect_err("lost");
    let text = format!("{error:#}");
    assert!(error.kind() == ErrorKind::Lost && text.to_lowercase().contains("pexpire"), "{text}");
}
