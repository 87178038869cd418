//! Making connections.

use std::net::SocketAddr;
use std::time::Duration;

use lockwell_core::backend::at_each_address;
use redis::io::AsyncDNSResolver;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisFuture, RedisResult,
};

use crate::wire::link::{Link, Subscriber};
use crate::words::address::Address;

/// How long making a connection may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(2);

/// How many commands the client crate takes in before the first is written.
const BUFFER: usize = 1024;

/// Makes a connection to one server, with the login and the certificates of the address.
pub(crate) async fn connect_to(
    address: &Address,
    addr: &ConnectionAddr,
    subscriber: Option<Subscriber>,
) -> RedisResult<Link> {
    open(address, address.info(addr)?, subscriber).await
}

/// Makes a connection to one server, with the certificates of the address.
pub(crate) async fn open(
    address: &Address,
    info: ConnectionInfo,
    subscriber: Option<Subscriber>,
) -> RedisResult<Link> {
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = info.addr() else {
        return open_at(address, info, subscriber, None).await;
    };
    let opened = at_each_address(host, *port, |place| {
        let opening = open_at(address, info.clone(), subscriber.clone(), Some(place));
        async move {
            match opening.await {
                Err(error) if error.is_io_error() => Err(error),
                opened => Ok(opened),
            }
        }
    });
    opened.await?
}

/// What the client crate takes for the only address of the server's name.
struct At(SocketAddr);

impl AsyncDNSResolver for At {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        _: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async { Ok(Box::new(std::iter::once(self.0)) as Box<_>) })
    }
}

async fn open_at(
    address: &Address,
    info: ConnectionInfo,
    subscriber: Option<Subscriber>,
    place: Option<SocketAddr>,
) -> RedisResult<Link> {
    let config = AsyncConnectionConfig::new()
        // Every request has a deadline of its own.
        .set_response_timeout(None)
        .set_connection_timeout(Some(CONNECT))
        .set_pipeline_buffer_size(BUFFER);
    let config = match subscriber {
        Some(subscriber) => config.set_push_sender(subscriber),
        None => config,
    };
    let config = match place {
        Some(place) => config.set_dns_resolver(At(place)),
        None => config,
    };
    client(address, info)?.get_multiplexed_async_connection_with_config(&config).await.map(Link)
}

#[cfg(feature = "tls")]
fn client(address: &Address, info: ConnectionInfo) -> RedisResult<Client> {
    match &address.tls {
        Some(files) => {
            // They were good when the client was made, so a file is probably being replaced: try again.
            let unusable = |error| RedisError::from(std::io::Error::other(format!("{error:#}")));
            Client::build_with_tls(info, crate::words::tls::certificates(files).map_err(unusable)?)
        }
        None => Client::open(info),
    }
}

#[cfg(not(feature = "tls"))]
fn client(_: &Address, info: ConnectionInfo) -> RedisResult<Client> {
    Client::open(info)
}

/// There is no server at the moment.
pub(crate) fn unreachable_now() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::NotConnected).into()
}
