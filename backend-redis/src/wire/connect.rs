//! Connects to what an address names: a node, or the master that sentinels name.

use redis::RedisResult;

use super::dial::{connect_to, unreachable_now};
use super::link::{Link, Subscriber};
use super::sentinel;
use crate::words::address::{Address, Topology};
use crate::words::error::is_wrong_password;

/// Makes a connection to the server at this address, or to the master that its sentinels name. What the
/// server pushes goes to the subscriber. The address [has its password](Address::logging_in); if it is
/// refused and there is another by now, that is tried.
pub(crate) async fn connect(address: &Address, subscriber: Option<Subscriber>) -> RedisResult<Link> {
    match connect_once(address, subscriber.clone()).await {
        Err(error) if is_wrong_password(&error) => match address.logging_in_anew().await {
            Some(address) => connect_once(&address, subscriber).await,
            None => Err(error),
        },
        done => done,
    }
}

async fn connect_once(address: &Address, subscriber: Option<Subscriber>) -> RedisResult<Link> {
    match &address.topology {
        Topology::Node(addr) => connect_to(address, addr, subscriber).await,
        Topology::Sentinel { sentinels, master } => {
            sentinel::connect(address, sentinels, master, subscriber).await
        }
        // The nodes of a cluster are connected to one by one.
        Topology::Cluster(_) => Err(unreachable_now()),
    }
}
