//! Three servers that elect a leader: ensembles of `ZooKeeper`, and clusters of etcd.

use std::fmt::Debug;
use std::net::SocketAddr;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need, Server};
use lockwell::{Locks, Result};
use testbed::{EtcdCluster, Proxy, ZooKeeperEnsemble};

/// What one of these servers offers.
pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Fifo, Link, LongestWait, Permits, Process, Server, Shared,
    };
    vec![Shared, Permits, Downgrade, Fencing, Fifo, Counted, LongestWait, Durable, Process, Server, Link]
}

/// The leader of several can be killed.
pub(crate) fn offers_of_three() -> Vec<Need> {
    let mut offers = offers();
    offers.push(Need::Failover);
    offers
}

/// What the kinds of such groups have in common.
#[async_trait]
pub(crate) trait Group: Debug + Send + Sync + 'static {
    fn servers(&self) -> Vec<testbed::Server>;
    fn url_via(&self, servers: &[SocketAddr]) -> String;
    /// Which of the servers leads.
    async fn leader(&self) -> Result<usize, testbed::Error>;
    /// Waits for a leader and its followers.
    async fn ready(&self) -> Result<(), testbed::Error>;

    fn addresses(&self) -> Vec<SocketAddr> {
        self.servers().iter().map(testbed::Server::addr).collect()
    }
}

#[async_trait]
impl Group for ZooKeeperEnsemble {
    fn servers(&self) -> Vec<testbed::Server> {
        Self::servers(self).iter().map(|server| testbed::Server::clone(server)).collect()
    }

    fn url_via(&self, servers: &[SocketAddr]) -> String {
        Self::url_via(self, servers)
    }

    async fn leader(&self) -> Result<usize, testbed::Error> {
        Self::leader(self).await
    }

    async fn ready(&self) -> Result<(), testbed::Error> {
        Self::ready(self).await
    }
}

#[async_trait]
impl Group for EtcdCluster {
    fn servers(&self) -> Vec<testbed::Server> {
        self.members().iter().map(|member| testbed::Server::clone(member)).collect()
    }

    fn url_via(&self, servers: &[SocketAddr]) -> String {
        Self::url_via(self, servers)
    }

    async fn leader(&self) -> Result<usize, testbed::Error> {
        Self::leader(self).await
    }

    async fn ready(&self) -> Result<(), testbed::Error> {
        Self::ready(self).await
    }
}

#[derive(Debug)]
pub(crate) struct Three<G>(pub(crate) G);

impl<G: Group> Three<G> {
    fn url(&self) -> String {
        self.0.url_via(&self.0.addresses())
    }

    async fn start_those_that_are_down(&self) {
        let mut starting = Vec::new();
        for server in self.0.servers().into_iter().filter(|server| server.pid().is_none()) {
            starting.push(tokio::spawn(async move { server.restart().await }));
        }
        for start in starting {
            start.await.expect("no panic").expect("the server starts again");
        }
        self.0.ready().await.expect("a leader and its followers");
    }
}

#[async_trait]
impl<G: Group> Harness for Three<G> {
    fn offers(&self) -> Vec<Need> {
        offers_of_three()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(self.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
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
impl<G: Group> Server for Three<G> {
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
