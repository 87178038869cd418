//! Connects to the server at an address.

use redis::RedisResult;

use super::dial::{connect_to, unreachable_now};
use super::link::{Link, Subscriber};
use crate::words::address::{Address, Topology};
use crate::words::error::is_wrong_password;

/// Makes a connection to the server at this address. What the server pushes goes to the subscriber. The
/// address [has its password](Address::logging_in); if it is refused and there is another by now, that is
/// tried.
pub(crate) async fn connect(address: &Address, subscriber: Option<Subscriber>) -> RedisResult<Link> {
    // Of several servers each is connected to by itself.
    let Topology::Node(addr) = &address.topology else { return Err(unreachable_now()) };
    match connect_to(address, addr, subscriber.clone()).await {
        Err(error) if is_wrong_password(&error) => match address.logging_in_anew().await {
            Some(address) => connect_to(&address, addr, subscriber).await,
            None => Err(error),
        },
        done => done,
    }
}
