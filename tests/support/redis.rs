//! A Redis server.

use std::sync::Arc;

use lockwell::conformance::OneServer;
use testbed::Release;

use super::servers::options;
use super::targets::Started;

pub(crate) use super::servers::offers;

pub(crate) async fn one(release: &'static Release) -> Started {
    let redis = testbed::Redis::start_with(&options().release(release)).await?;
    let (door, server) = (redis.addr(), testbed::Server::clone(&redis));
    let url = move |addr| redis.url_via(addr);
    Ok(Arc::new(OneServer::new(offers(), door, server, url, lockwell::connect)))
}
