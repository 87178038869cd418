//! A network between clients and servers, which fails on demand.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::async_trait;
use lockwell_proxy::{Direction, Proxy};

use crate::kit::connect::Connect;
use crate::{Link, Way};
use lockwell_core::{Locks, Result};

/// Proxies, one in front of each server, as a [`Link`].
pub struct Line {
    proxies: Vec<Proxy>,
    url: String,
    connect: Connect,
    keep: Vec<Box<dyn Any + Send + Sync>>,
}

impl Line {
    /// `url` is the address of the servers behind these proxies, and `connect` makes a client from it.
    pub fn new<F>(
        proxies: Vec<Proxy>,
        url: String,
        connect: impl Fn(String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Locks>> + Send + 'static,
    {
        Self::with(proxies, url, Arc::new(move |url| Box::pin(connect(url))))
    }

    pub(super) fn with(proxies: Vec<Proxy>, url: String, connect: Connect) -> Self {
        Self { proxies, url, connect, keep: Vec::new() }
    }

    /// Keeps something, such as a server, for as long as this network exists.
    #[must_use]
    pub fn keeping(mut self, what: impl Any + Send + Sync) -> Self {
        self.keep.push(Box::new(what));
        self
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("proxies", &self.proxies)
            .field("keep", &self.keep.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Link for Line {
    async fn client(&self) -> Result<Locks> {
        (self.connect)(self.url.clone()).await
    }

    fn blackhole(&self, way: Way) {
        let direction = match way {
            Way::ToServer => Direction::ToServer,
            Way::ToClient => Direction::ToClient,
            Way::Both => Direction::Both,
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
