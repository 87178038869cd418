//! A Redis server.

use lockwell::conformance::Need;
use testbed::Release;

use super::servers::{OneServer, missing, options};
use super::targets::Started;

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, LongestWait, Permits, Process, Server, Shared,
        TokenBlocks,
    };
    vec![
        Shared,
        Permits,
        Downgrade,
        TokenBlocks,
        Fencing,
        Fifo,
        Counted,
        LongestWait,
        Durable,
        Process,
        Server,
        Link,
    ]
}

pub(crate) async fn one(release: &'static Release) -> Started {
    let options = options().release(release);
    let redis = testbed::Redis::start_with(&options).await.map_err(|error| missing(&error))?;
    let server = testbed::Server::clone(&redis);
    Ok(OneServer::new(server, offers(), Box::new(move |addr| redis.url_via(addr)), None))
}
