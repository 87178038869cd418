//! Connects to what an address names: a node, or the master that sentinels name.

use redis::RedisResult;

use super::dial::{connect_to, unreachable_now};
use super::link::{Link, Subscriber};
use super::sentinel;
use crate::words::address::{Address, Topology};

/// Makes a connection to the server at this address, or to the master that its sentinels name. What the
/// server pushes goes to the subscriber.
pub(crate) async fn connect(address: &Address, subscriber: Option<Subscriber>) -> RedisResult<Link> {
    match &address.topology {
        Topology::Node(addr) => connect_to(address, addr, subscriber).await,
        Topology::Sentinel { sentinels, master } => {
            sentinel::connect(address, sentinels, master, subscriber).await
        }
        // The nodes of a cluster are connected to one by one.
        Topology::Cluster(_) => Err(unreachable_now()),
    }
}
