//! Independent Redis nodes, all well or some of them not.

use std::net::SocketAddr;
use std::sync::Arc;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need, Server};
use lockwell::{Locks, Result};
use testbed::{Direction, Durability, Options, Proxy, Redis, Release};

use super::targets::{Started, quick_folder};

pub(crate) fn offers() -> Vec<Need> {
    use Need::{
        Counted, Downgrade, Durable, Fencing, Link, LongestWait, Process, Server, Shared, TokenBlocks,
    };
    vec![Shared, Downgrade, TokenBlocks, Fencing, Counted, LongestWait, Durable, Process, Server, Link]
}

/// What is wrong with some of the nodes, for the whole suite.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    None,
    /// So many nodes are down.
    Dead(usize),
    /// One node takes connections and never answers.
    BlackHole,
}

pub(crate) async fn start(release: &'static Release, count: usize, trouble: Trouble) -> Started {
    // Nodes that do not write every change to the disk have no vote for a while after their start.
    let options = Options::new().release(release).durability(Durability::Disk).parent(quick_folder());
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Redis::start_with(&options).await?);
    }
    let mut hole = None;
    match trouble {
        Trouble::None => (),
        Trouble::Dead(dead) => {
            for node in nodes.iter().take(dead) {
                node.kill()?;
            }
        }
        Trouble::BlackHole => {
            let proxy = Proxy::start(nodes[0].addr()).await.map_err(testbed::Error::from)?;
            proxy.blackhole(Direction::Both);
            hole = Some(proxy);
        }
    }
    let alive = match trouble {
        Trouble::Dead(dead) => nodes.split_at(dead).1.to_vec(),
        _ => nodes.clone(),
    };
    Ok(Arc::new(Nodes { all: nodes, alive, hole }))
}

#[derive(Debug)]
struct Nodes {
    all: Vec<Redis>,
    alive: Vec<Redis>,
    /// Stands before the first node.
    hole: Option<Proxy>,
}

impl Nodes {
    fn url(addrs: impl IntoIterator<Item = SocketAddr>) -> String {
        let addrs: Vec<_> = addrs.into_iter().map(|addr| addr.to_string()).collect();
        format!("redlock://{}", addrs.join(","))
    }

    fn addrs(&self) -> Vec<SocketAddr> {
        let mut addrs: Vec<_> = self.all.iter().map(|node| node.addr()).collect();
        if let Some(hole) = &self.hole {
            addrs[0] = hole.addr();
        }
        addrs
    }
}

#[async_trait]
impl Harness for Nodes {
    fn offers(&self) -> Vec<Need> {
        offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(Self::url(self.addrs())).await
    }

    fn address(&self) -> Option<String> {
        Some(Self::url(self.addrs()))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    async fn link(&self) -> Option<Box<dyn Link>> {
        let (mut proxies, mut addrs) = (Vec::new(), self.addrs());
        for addr in addrs.iter_mut().skip(usize::from(self.hole.is_some())) {
            let proxy = Proxy::start(*addr).await.expect("a proxy");
            *addr = proxy.addr();
            proxies.push(proxy);
        }
        Some(Box::new(Line::new(proxies, Self::url(addrs), lockwell::connect)))
    }
}

#[async_trait]
impl Server for Nodes {
    async fn pause(&self) {
        self.alive.iter().for_each(|node| node.pause().expect("the node runs"));
    }

    async fn resume(&self) {
        for node in &self.alive {
            if node.pid().is_none() {
                node.restart().await.expect("the node starts again");
            }
            node.resume().expect("the node runs");
        }
    }

    async fn restart(&self) {
        for node in &self.alive {
            node.stop().await.expect("the node ends");
        }
        for node in &self.alive {
            node.restart().await.expect("the node starts again");
        }
    }
}
