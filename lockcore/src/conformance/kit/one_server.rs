//! The harness for a backend whose server is one process.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockwell_proxy::{Direction, Proxy};
use rustix::process::Signal;

use super::process::{MakeCommand, ServerProcess};
use super::target::{Connect, Missing, Started};
use crate::conformance::{Harness, Link, Need, Server, Way};
use crate::{Locks, Moment, Result};

/// How long a server may take until a client can connect.
const STARTING: Duration = Duration::from_mins(1);

type Url = Arc<dyn Fn(SocketAddr) -> String + Send + Sync>;

pub(super) struct OneServer {
    offers: Vec<Need>,
    process: ServerProcess,
    url: Url,
    connect: Connect,
}

impl OneServer {
    pub(super) async fn start(
        offers: Vec<Need>,
        command: MakeCommand,
        url: Url,
        connect: Connect,
    ) -> Started {
        let this = Self { offers, process: ServerProcess::new(command)?, url, connect };
        this.begin().await?;
        Ok(Arc::new(this))
    }

    /// Starts the process, and waits until a client can connect.
    async fn begin(&self) -> Result<(), Missing> {
        self.process.start().map_err(|error| Missing::Broken(format!("a server: {error}")))?;
        let end = Moment::now().after(STARTING);
        loop {
            let why = match tokio::time::timeout(Duration::from_secs(5), self.client()).await {
                Ok(Ok(client)) => {
                    // It has done nothing that could fail to end.
                    drop(client.close().await);
                    return Ok(());
                }
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no answer".to_owned(),
            };
            if let Some(ended) = self.process.ended() {
                return Err(ended);
            }
            if end.has_passed() {
                return Err(Missing::Broken(format!("no client can connect within {STARTING:?}: {why}")));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn address(&self) -> String {
        (self.url)(self.process.site().addr())
    }
}

impl fmt::Debug for OneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OneServer").field(&self.process.site()).finish()
    }
}

#[async_trait]
impl Harness for OneServer {
    fn offers(&self) -> Vec<Need> {
        self.offers.clone()
    }

    async fn client(&self) -> Result<Locks> {
        (self.connect)(self.address()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.address())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        let proxy = Proxy::start(self.process.site().addr()).await.expect("a proxy");
        let (url, connect) = ((self.url)(proxy.addr()), Arc::clone(&self.connect));
        Some(Box::new(Line { proxy, url, connect }))
    }
}

#[async_trait]
impl Server for OneServer {
    async fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    async fn resume(&self) {
        if self.process.is_running() {
            self.process.signal(Signal::CONT);
        } else {
            self.begin().await.expect("the server starts again");
        }
    }

    async fn restart(&self) {
        self.process.stop().await;
        self.begin().await.expect("the server starts again");
    }
}

/// A network between clients and the server.
struct Line {
    proxy: Proxy,
    url: String,
    connect: Connect,
}

#[async_trait]
impl Link for Line {
    async fn client(&self) -> Result<Locks> {
        (self.connect)(self.url.clone()).await
    }

    fn blackhole(&self, way: Way) {
        self.proxy.blackhole(match way {
            Way::ToServer => Direction::ToServer,
            Way::ToClient => Direction::ToClient,
            Way::Both => Direction::Both,
        });
    }

    fn cut(&self) {
        self.proxy.cut();
    }

    fn delay(&self, each_way: Duration) {
        self.proxy.delay(each_way);
    }

    fn drop_reply(&self, k: u64) {
        self.proxy.drop_reply(k);
    }

    fn requests(&self) -> u64 {
        self.proxy.turns()
    }

    fn dropped_replies(&self) -> u64 {
        self.proxy.dropped_replies()
    }

    fn hold_back(&self) {
        self.proxy.hold_back();
    }

    async fn deliver(&self) -> u64 {
        self.proxy.deliver()
    }

    fn heal(&self) {
        self.proxy.heal();
    }
}
