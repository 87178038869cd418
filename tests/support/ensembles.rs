//! `ZooKeeper`: one server, and an ensemble of three.

use std::net::SocketAddr;
use std::sync::Arc;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need, OneServer, Server};
use lockwell::{Locks, Result};
use testbed::{Options, Proxy, Release, ZooKeeper, ZooKeeperEnsemble};

use super::targets::Started;

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, LongestWait, Permits, Process, Server, Shared,
    };
    vec![Shared, Permits, Downgrade, Fencing, Fifo, Counted, LongestWait, Durable, Process, Server, Link]
}

/// The leader of an ensemble can be killed.
pub(crate) fn offers_of_three() -> Vec<Need> {
    let mut offers = offers();
    offers.push(Need::Failover);
    offers
}

/// The suite works with leases from a second to a minute, and measures how soon they end: so a short tick,
/// which is the grain of the server's time, and no upper bound in the way.
fn options() -> Options {
    super::servers::options().setting("tickTime", "200").setting("maxSessionTimeout", "90000")
}

pub(crate) async fn one(release: &'static Release) -> Started {
    let zookeeper = ZooKeeper::start_with(&options().release(release)).await?;
    // A `ZooKeeper` is a `Server`, by its address.
    let (door, server) = (zookeeper.addr(), testbed::Server::clone(&zookeeper));
    let url = move |addr| zookeeper.url_via(addr);
    Ok(Arc::new(OneServer::new(offers(), door, server, url, lockwell::connect)))
}

/// Three servers. They may be silent to each other for a while, since the machine may be busy. A session that
/// another server has taken over counts as the shortest until the servers are asked, and three Java machines
/// that have just been started together on two cores answer late.
pub(crate) async fn three(release: &'static Release) -> Started {
    let options = options().release(release).setting("syncLimit", "10").setting("initLimit", "50");
    let options = options.setting("minSessionTimeout", "2000");
    let ensemble = ZooKeeperEnsemble::start(3, &options).await?;
    Ok(Arc::new(Three(ensemble)))
}

#[derive(Debug)]
struct Three(ZooKeeperEnsemble);

impl Three {
    async fn start_those_that_are_down(&self) {
        let mut starting = Vec::new();
        for server in self.0.servers().iter().filter(|server| server.pid().is_none()) {
            let server = server.clone();
            starting.push(tokio::spawn(async move { server.restart().await }));
        }
        for start in starting {
            start.await.expect("no panic").expect("the server starts again");
        }
        self.0.ready().await.expect("a leader and its followers");
    }
}

#[async_trait]
impl Harness for Three {
    fn offers(&self) -> Vec<Need> {
        offers_of_three()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(self.0.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.0.url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        let mut proxies = Vec::new();
        for addr in self.0.addresses() {
            proxies.push(Proxy::start(addr).await.expect("a proxy"));
        }
        let addresses: Vec<SocketAddr> = proxies.iter().map(Proxy::addr).collect();
        let url = self.0.url_via(&addresses);
        Some(Box::new(Line::new(proxies, url, lockwell::connect)))
    }
}

#[async_trait]
impl Server for Three {
    async fn pause(&self) {
        self.0.servers().iter().for_each(|server| server.pause().expect("the server runs"));
    }

    async fn resume(&self) {
        for server in self.0.servers().iter().filter(|server| server.pid().is_some()) {
            server.resume().expect("the server runs");
        }
        self.start_those_that_are_down().await;
    }

    async fn fail_over(&self) {
        let leader = self.0.leader().await.expect("a leader");
        self.0.servers()[leader].kill().expect("the leader runs");
    }

    async fn restart(&self) {
        for server in self.0.servers() {
            server.stop().await.expect("the server ends");
        }
        self.start_those_that_are_down().await;
    }
}
