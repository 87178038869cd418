//! Nodes of Redis that take TLS connections.

use testbed::{Certificates, Durability, Options, Redis, if_installed};

use crate::everyday::keys;
use crate::looking::{Fresh, make_nothing};
use crate::support::block_on;

/// Nodes, and their addresses with the files that they ask for.
async fn nodes(count: usize, durability: Durability) -> Option<(Certificates, Vec<Redis>, String)> {
    let files = if_installed(Certificates::make())?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes
            .push(if_installed(Redis::start_with(&Options::new().durability(durability).tls(&files)).await)?);
    }
    let hosts: Vec<_> = nodes.iter().map(|node| node.peer_addr().to_string()).collect();
    let [ca, cert, key] = ["ca.pem", "ours.pem", "ours.key"].map(|file| files.path(file));
    let place = format!("{}?ca={ca}&cert={cert}&key={key}", hosts.join(","));
    Some((files, nodes, place))
}

#[test]
fn reading_makes_nothing_over_tls() {
    block_on(async {
        let Some((_files, nodes, place)) = nodes(1, Durability::OsCache).await else { return };
        make_nothing(&format!("rediss://{place}"), Fresh::HasNoLocks, async || keys(&nodes)).await;
    });
}

/// Nodes that write each change to the disk have a vote at once.
#[test]
fn reading_makes_nothing_at_redlock_over_tls() {
    block_on(async {
        let Some((_files, nodes, place)) = nodes(3, Durability::Disk).await else { return };
        make_nothing(&format!("redlocks://{place}"), Fresh::HasNoLocks, async || keys(&nodes)).await;
    });
}
