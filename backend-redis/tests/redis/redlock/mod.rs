//! Locks held at a majority of independent nodes.

mod addresses;
mod fresh_nodes;
mod planting;
mod readers;
mod releases;
mod restarts;
mod rivals;
mod rounds;
mod slow_nodes;

use futures_util::future::join_all;
use testbed::{Options, Redis};

use crate::servers::redis_with;

/// So many nodes. `None` where the program is not installed.
async fn nodes(count: usize, options: &Options) -> Option<Vec<Redis>> {
    join_all((0..count).map(|_| redis_with(options))).await.into_iter().collect()
}

/// The address of a Redlock over nodes at these addresses.
fn url_of(addrs: &[std::net::SocketAddr]) -> String {
    let hosts: Vec<_> = addrs.iter().map(ToString::to_string).collect();
    format!("redlock://{}", hosts.join(","))
}
