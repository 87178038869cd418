//! Independent Redis nodes, all well or some of them not.

use std::net::SocketAddr;
use std::sync::Arc;

use lockwell::conformance::Need;
use testbed::{Direction, Durability, Options, Proxy, Redis, Release};

use super::group::Group;
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
    let dead = if let Trouble::Dead(dead) = trouble { dead } else { 0 };
    let mut doors: Vec<_> = nodes.iter().map(|node| node.addr()).collect();
    if let Some(hole) = &hole {
        doors[0] = hole.addr();
    }
    let alive = nodes[dead..].iter().map(|node| testbed::Server::clone(node)).collect();
    let url = |addrs: &[SocketAddr]| {
        let addrs: Vec<_> = addrs.iter().map(ToString::to_string).collect();
        format!("redlock://{}", addrs.join(","))
    };
    Ok(Arc::new(Group::new(offers(), alive, doors, url).keeping((nodes, hole))))
}
