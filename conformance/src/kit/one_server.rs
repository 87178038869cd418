//! The harness for a backend whose server is at one address.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use lockwell_core::async_trait;
use lockwell_proxy::Proxy;

use super::line::Line;
use crate::kit::connect::Connect;
use crate::{Harness, Need, Server};
use lockwell_core::{Locks, Result};

type Url = Box<dyn Fn(SocketAddr) -> String + Send + Sync>;
type Purge = Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A server at one address, as a [`Harness`]: another process can use it, it can be stopped, and a network
/// that fails on demand can be put in front of it.
pub struct OneServer {
    offers: Vec<Need>,
    door: SocketAddr,
    server: Arc<dyn Server>,
    url: Url,
    connect: Connect,
    purge: Option<Purge>,
}

impl OneServer {
    /// `door` is where clients connect: the server, or a pooler in front of it. `url` makes the address for
    /// clients from it, or from that of the network in front of it. `connect` makes a client from that
    /// address.
    pub fn new<F>(
        offers: Vec<Need>,
        door: SocketAddr,
        server: impl Server + 'static,
        url: impl Fn(SocketAddr) -> String + Send + Sync + 'static,
        connect: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Locks>> + Send + 'static,
    {
        let connect: Connect = Arc::new(move |url| Box::pin(connect(url)));
        Self { offers, door, server: Arc::new(server), url: Box::new(url), connect, purge: None }
    }

    /// With a function that deletes the records of idle locks at the server of an address ([`Need::Purge`]).
    #[must_use]
    pub fn purged_by<F>(mut self, purge: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.purge = Some(Box::new(move |url| Box::pin(purge(url))));
        self
    }

    fn url(&self) -> String {
        (self.url)(self.door)
    }
}

impl fmt::Debug for OneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneServer").field(&self.door).finish()
    }
}

#[async_trait]
impl Harness for OneServer {
    fn offers(&self) -> Vec<Need> {
        self.offers.clone()
    }

    async fn client(&self) -> Result<Locks> {
        (self.connect)(self.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.server)
    }

    async fn link(&self) -> Option<Box<dyn crate::Link>> {
        let proxy = Proxy::start(self.door).await.expect("a proxy");
        let url = (self.url)(proxy.addr());
        Some(Box::new(Line::with(vec![proxy], url, Arc::clone(&self.connect))))
    }

    async fn purge(&self) {
        let purge = self.purge.as_ref().expect("the harness offers a purge");
        purge(self.url()).await;
    }
}
