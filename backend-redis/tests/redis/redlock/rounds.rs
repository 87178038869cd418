//! A record at a node belongs to claim and round.

use std::time::Duration;

use lockwell_core::Renewal;
use testbed::{Direction, Proxy};

use super::{nodes, url_of};
use crate::asking::claim;
use crate::servers::{backend, on_disk, redlock_url, soon, tell};

/// The model finds two writers otherwise (`a_renewal_that_counts_any_round_does_not_keep_the_lock`): what an
/// earlier round has may be released at any moment.
#[tokio::test]
async fn a_renewal_does_not_count_what_an_earlier_round_has() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let first = Proxy::start(nodes[0].addr()).await.expect("a proxy");
    let last = Proxy::start(nodes[2].addr()).await.expect("a proxy");
    let addrs = [first.addr(), nodes[1].addr(), last.addr()];
    let backend = backend(&url_of(&addrs)).await.expect("a connection");
    let claim = claim("a", Duration::from_secs(20));
    // The vote of a round that was not released yet.
    let owner = format!("{:032x}", claim.owner().as_u128());
    tell(&nodes[0], &["SET", "lockwell:a", &format!("{owner}:5:1:0:by hand"), "PX", "20000"]);
    first.cut();
    let grant = backend.acquire(&claim).await.expect("an answer").expect("two nodes are free");
    // The request for its vote has timed out by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.heal();
    last.blackhole(Direction::Both);
    let renewal = backend.renew(std::slice::from_ref(&grant), soon()).await.remove(0);
    assert!(matches!(renewal, Renewal::Unknown(_)), "one node of three has the lock: {renewal:?}");
    last.heal();
    // The release of that round removes only its own record, and the final release removes all.
    tell(&nodes[0], &["DEL", "lockwell:a"]);
    let mut renewal = backend.renew(std::slice::from_ref(&grant), soon()).await.remove(0);
    if let Renewal::Unknown(_) = renewal {
        // The connection was replaced.
        renewal = backend.renew(std::slice::from_ref(&grant), soon()).await.remove(0);
    }
    assert!(matches!(renewal, Renewal::Renewed(_)), "two nodes have it: {renewal:?}");
    backend.release(&claim).await.expect("a majority");
}

/// The vote of an earlier round is replaced by one with a number of its own.
#[tokio::test]
async fn a_later_round_gets_a_vote_of_its_own() {
    let Some(nodes) = nodes(3, &on_disk()).await else { return };
    let backend = backend(&redlock_url(&nodes)).await.expect("a connection");
    let claim = claim("a", Duration::from_secs(20));
    let owner = format!("{:032x}", claim.owner().as_u128());
    for node in &nodes {
        tell(node, &["SET", "lockwell:a", &format!("{owner}:5:1:0:by hand"), "PX", "20000"]);
    }
    let grant = backend.acquire(&claim).await.expect("an answer").expect("it is the claim's own");
    assert!(grant.token().get() > 5, "the number of an earlier round: {}", grant.token());
    backend.release(&claim).await.expect("a majority");
}
