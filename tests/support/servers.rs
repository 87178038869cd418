//! One server process, started by testbed, with every fault that it can inject.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Link, Need, Server, Way};
use lockwell::{Locks, Result};
use testbed::{Direction, Durability, Options, Proxy};

use super::targets::{Missing, quick_folder};

/// Servers that are killed must keep what they have acknowledged; power cuts are not part of the suite.
pub(crate) fn options() -> Options {
    Options::new().durability(Durability::OsCache).parent(quick_folder())
}

pub(crate) fn missing(error: &testbed::Error) -> Missing {
    if error.is_not_installed() {
        Missing::NotInstalled(error.to_string())
    } else {
        Missing::Broken(error.to_string())
    }
}

pub(crate) type UrlVia = Box<dyn Fn(SocketAddr) -> String + Send + Sync>;
pub(crate) type Purge = fn(String) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct OneServer {
    server: testbed::Server,
    /// Where clients connect: the server, or a pooler before it.
    door: SocketAddr,
    offers: Vec<Need>,
    url_via: UrlVia,
    purge: Option<Purge>,
}

impl OneServer {
    #[allow(clippy::new_ret_no_self)] // It is used as a harness only.
    pub(crate) fn new(
        server: testbed::Server,
        offers: Vec<Need>,
        url_via: UrlVia,
        purge: Option<Purge>,
    ) -> Arc<dyn Harness> {
        Self::behind(server.addr(), server, offers, url_via, purge)
    }

    /// One that clients do not connect to directly.
    pub(crate) fn behind(
        door: SocketAddr,
        server: testbed::Server,
        offers: Vec<Need>,
        url_via: UrlVia,
        purge: Option<Purge>,
    ) -> Arc<dyn Harness> {
        Arc::new(Self { server, door, offers, url_via, purge })
    }

    fn url(&self) -> String {
        (self.url_via)(self.door)
    }
}

impl fmt::Debug for OneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneServer").field(&self.url()).finish()
    }
}

#[async_trait]
impl Harness for OneServer {
    fn offers(&self) -> Vec<Need> {
        self.offers.clone()
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
        let proxy = Proxy::start(self.door).await.expect("a proxy");
        let url = (self.url_via)(proxy.addr());
        Some(Box::new(Cable { proxies: vec![proxy], url, keep: Vec::new() }))
    }

    async fn purge(&self) {
        let purge = self.purge.expect("this backend purges");
        purge(self.url()).await;
    }
}

#[async_trait]
impl Server for OneServer {
    async fn pause(&self) {
        self.server.pause().expect("the server runs");
    }

    async fn resume(&self) {
        if self.server.pid().is_none() {
            self.server.restart().await.expect("the server starts again");
        }
        self.server.resume().expect("the server runs");
    }

    async fn restart(&self) {
        self.server.stop().await.expect("the server ends");
        self.server.restart().await.expect("the server starts again");
    }
}

/// Proxies, one for each server, and the address of the servers behind them.
#[derive(Debug)]
pub(crate) struct Cable {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) url: String,
    /// Servers that live as long as this.
    #[allow(dead_code)] // It is there to be dropped.
    pub(crate) keep: Vec<testbed::Server>,
}

/// What a client says in its address to trust servers with these certificates and to be trusted.
#[cfg(all(feature = "redis", feature = "tls"))]
pub(crate) fn credentials(files: &testbed::Certificates) -> String {
    format!("?ca={}&cert={}&key={}", files.path("ca.pem"), files.path("ours.pem"), files.path("ours.key"))
}

#[async_trait]
impl Link for Cable {
    async fn client(&self) -> Result<Locks> {
        lockwell::connect(&self.url).await
    }

    fn blackhole(&self, way: Way) {
        let direction = match way {
            Way::ToServer => Direction::ToServer,
            Way::ToClient => Direction::ToClient,
            _ => Direction::Both,
        };
        self.proxies.iter().for_each(|proxy| proxy.blackhole(direction));
    }

    fn cut(&self) {
        self.proxies.iter().for_each(Proxy::cut);
    }

    fn delay(&self, each_way: Duration) {
        self.proxies.iter().for_each(|proxy| proxy.delay(each_way));
    }

    fn drop_reply(&self, k: u64) {
        self.proxies.iter().for_each(|proxy| proxy.drop_reply(k));
    }

    fn requests(&self) -> u64 {
        self.proxies.iter().map(Proxy::turns).sum()
    }

    fn dropped_replies(&self) -> u64 {
        self.proxies.iter().map(Proxy::dropped_replies).sum()
    }

    fn hold_back(&self) {
        self.proxies.iter().for_each(Proxy::hold_back);
    }

    async fn deliver(&self) -> u64 {
        self.proxies.iter().map(Proxy::deliver).sum()
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }
}
