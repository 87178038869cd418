//! Several servers that are one backend: independent nodes of Redis, ensembles, clusters.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need, Server};
use lockwell::{Locks, Result};
use testbed::Proxy;

/// The address of servers at these doors.
type Url = dyn Fn(&[SocketAddr]) -> String + Send + Sync;

type Waited<T> = Pin<Box<dyn Future<Output = Result<T, testbed::Error>> + Send>>;

pub(crate) struct Group {
    offers: Vec<Need>,
    servers: Vec<testbed::Server>,
    /// Where clients connect to: these servers, and perhaps some that are down for the whole suite.
    doors: Vec<SocketAddr>,
    url: Box<Url>,
    /// Waits until they agree, after all of them were started.
    ready: Box<dyn Fn() -> Waited<()> + Send + Sync>,
    /// Which of them leads.
    leader: Option<Box<dyn Fn() -> Waited<usize> + Send + Sync>>,
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps = self.kept.is_some();
        f.debug_struct("Group").field("servers", &self.servers).field("keeps", &keeps).finish_non_exhaustive()
    }
}

impl Group {
    pub(crate) fn new(
        offers: Vec<Need>,
        servers: Vec<testbed::Server>,
        doors: Vec<SocketAddr>,
        url: impl Fn(&[SocketAddr]) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            offers,
            servers,
            doors,
            url: Box::new(url),
            ready: Box::new(|| Box::pin(async { Ok(()) })),
            leader: None,
            kept: None,
        }
    }

    /// What lives as long as this.
    #[cfg(feature = "redis")]
    pub(crate) fn keeping(mut self, kept: impl Any + Send + Sync) -> Self {
        self.kept = Some(Box::new(kept));
        self
    }

    #[cfg(any(feature = "zk", feature = "etcd", feature = "tls"))]
    pub(crate) fn ready(mut self, ready: impl Fn() -> Waited<()> + Send + Sync + 'static) -> Self {
        self.ready = Box::new(ready);
        self
    }

    #[cfg(any(feature = "zk", feature = "etcd"))]
    pub(crate) fn led_by(mut self, leader: impl Fn() -> Waited<usize> + Send + Sync + 'static) -> Self {
        self.leader = Some(Box::new(leader));
        self
    }
}

#[async_trait]
impl Harness for Group {
    fn offers(&self) -> Vec<Need> {
        self.offers.clone()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect((self.url)(&self.doors)).await
    }

    fn address(&self) -> Option<String> {
        Some((self.url)(&self.doors))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        let mut proxies = Vec::new();
        for door in &self.doors {
            proxies.push(Proxy::start(*door).await.expect("a proxy"));
        }
        let doors: Vec<_> = proxies.iter().map(Proxy::addr).collect();
        Some(Box::new(Line::new(proxies, (self.url)(&doors), lockwell::connect)))
    }
}

#[async_trait]
impl Server for Group {
    async fn pause(&self) {
        self.servers.iter().for_each(|server| server.pause().expect("the server runs"));
    }

    async fn resume(&self) {
        let mut starting = Vec::new();
        for server in &self.servers {
            if server.pid().is_some() {
                server.resume().expect("the server runs");
            } else {
                let server = server.clone();
                starting.push(tokio::spawn(async move { server.restart().await }));
            }
        }
        for start in starting {
            start.await.expect("no panic").expect("the server starts again");
        }
        (self.ready)().await.expect("they agree");
    }

    async fn fail_over(&self) {
        let leader = self.leader.as_ref().expect("it is offered");
        self.servers[leader().await.expect("a leader")].kill().expect("the leader runs");
    }

    async fn restart(&self) {
        for server in &self.servers {
            server.stop().await.expect("the server ends");
        }
        self.resume().await;
    }
}
