//! The servers of one run, and the ways to them.

use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use testbed::{Durability, MariaDb, Options, Postgres, Proxy, Redis, Server, ZooKeeper, ZooKeeperEnsemble};

use crate::error::{Error, Result};

/// A backend that scenarios run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Workers are tasks of this process.
    Memory,
    Sqlite,
    Postgres,
    Mariadb,
    Redis,
    /// Redlock on three servers.
    Redlock3,
    /// One server of `ZooKeeper`.
    Zookeeper,
    /// An ensemble of three.
    Zookeeper3,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Memory,
        Self::Sqlite,
        Self::Postgres,
        Self::Mariadb,
        Self::Redis,
        Self::Redlock3,
        Self::Zookeeper,
        Self::Zookeeper3,
    ];

    /// Those of the quick set: one of each kind.
    pub(crate) const QUICK: [Self; 4] = [Self::Sqlite, Self::Postgres, Self::Redis, Self::Zookeeper];

    /// As the command line calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Redis => "redis",
            Self::Redlock3 => "redlock3",
            Self::Zookeeper => "zookeeper",
            Self::Zookeeper3 => "zookeeper3",
        }
    }

    pub(crate) fn has_server(self) -> bool {
        !matches!(self, Self::Memory | Self::Sqlite)
    }

    pub(crate) fn is_sql_server(self) -> bool {
        matches!(self, Self::Postgres | Self::Mariadb)
    }

    pub(crate) fn is_redis(self) -> bool {
        matches!(self, Self::Redis | Self::Redlock3)
    }

    pub(crate) fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zookeeper | Self::Zookeeper3)
    }

    /// How many servers there are.
    pub(crate) fn nodes(self) -> u32 {
        match self {
            Self::Memory | Self::Sqlite => 0,
            Self::Redlock3 | Self::Zookeeper3 => 3,
            _ => 1,
        }
    }

    /// Whether waiters are served in order.
    pub(crate) fn is_in_order(self) -> bool {
        self != Self::Redlock3
    }

    /// Whether it has semaphores.
    pub(crate) fn has_permits(self) -> bool {
        self != Self::Redlock3
    }
}

/// What the servers keep when they are killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything that they have acknowledged.
    #[default]
    Keeps,
    /// Nothing.
    Forgets,
}

/// Servers, which end with this.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) kind: Kind,
    pub(crate) nodes: Vec<Node>,
    memory: Memory,
    folder: TempDir,
    ensemble: Option<ZooKeeperEnsemble>,
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Redis(Redis),
    Postgres(Postgres),
    MariaDb(MariaDb),
    ZooKeeper(ZooKeeper),
}

impl Node {
    pub(crate) fn server(&self) -> &Server {
        match self {
            Self::Redis(server) => server,
            Self::Postgres(server) => server,
            Self::MariaDb(server) => server,
            Self::ZooKeeper(server) => server,
        }
    }
}

/// A client's own way to all servers.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) url: String,
}

impl Ground {
    /// Starts the servers. Their data is in memory where that is possible: the scenarios are about locks, not about
    /// disks.
    pub(crate) async fn start(kind: Kind, memory: Memory) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let durability = match (memory, kind) {
            (Memory::Forgets, _) => Durability::Fast,
            // A node of Redlock that answers before its change is on the disk has no vote for a while after its start.
            (Memory::Keeps, Kind::Redlock3) => Durability::Disk,
            (Memory::Keeps, _) => Durability::OsCache,
        };
        let options = Options::new().durability(durability).parent(&parent);
        // The tick is the grain of the time of ZooKeeper, and leases are short here.
        let ticking = options.clone().setting("tickTime", "200").setting("maxSessionTimeout", "60000");
        let folder = tempfile::Builder::new().prefix("lockwell-faults-").tempdir_in(&parent)?;
        let mut ground = Self { kind, nodes: Vec::new(), memory, folder, ensemble: None };
        match kind {
            Kind::Memory | Kind::Sqlite => (),
            Kind::Postgres => {
                let options = options.setting("max_connections", "300");
                ground.nodes.push(Node::Postgres(Postgres::start_with(&options).await.map_err(failed)?));
            }
            Kind::Mariadb => {
                ground.nodes.push(Node::MariaDb(MariaDb::start_with(&options).await.map_err(failed)?));
            }
            Kind::Redis | Kind::Redlock3 => {
                for _ in 0..kind.nodes() {
                    ground.nodes.push(Node::Redis(Redis::start_with(&options).await.map_err(failed)?));
                }
            }
            Kind::Zookeeper => {
                let server = ZooKeeper::start_with(&ticking).await.map_err(failed)?;
                ground.nodes.push(Node::ZooKeeper(server));
            }
            Kind::Zookeeper3 => {
                let ticking = ticking.setting("syncLimit", "10").setting("initLimit", "50");
                let ensemble = ZooKeeperEnsemble::start(3, &ticking).await.map_err(failed)?;
                ground.nodes.extend(ensemble.servers().iter().cloned().map(Node::ZooKeeper));
                ground.ensemble = Some(ensemble);
            }
        }
        if kind == Kind::Redlock3 && memory == Memory::Forgets {
            // Until the new nodes have a vote.
            tokio::time::sleep(LONGEST_TTL + std::time::Duration::from_secs(1)).await;
        }
        Ok(ground)
    }

    /// The address by which clients find the servers at these addresses.
    fn url(&self, addrs: &[SocketAddr]) -> String {
        let first = addrs.first().copied();
        match (self.nodes.first(), first) {
            (Some(Node::Postgres(server)), Some(addr)) => server.url_via(addr),
            (Some(Node::MariaDb(server)), Some(addr)) => server.url_via(addr),
            (Some(Node::Redis(_)), _) if self.kind == Kind::Redlock3 => {
                let nodes: Vec<_> = addrs.iter().map(ToString::to_string).collect();
                let options = match self.memory {
                    Memory::Keeps => String::new(),
                    Memory::Forgets => format!("?longest_ttl={}s", LONGEST_TTL.as_secs()),
                };
                format!("redlock://{}{options}", nodes.join(","))
            }
            (Some(Node::Redis(server)), Some(addr)) => server.url_via(addr),
            (Some(Node::ZooKeeper(server)), Some(addr)) => match &self.ensemble {
                Some(ensemble) => ensemble.url_via(addrs),
                None => server.url_via(addr),
            },
            _ if self.kind == Kind::Memory => format!("memory://{}", self.folder.path().display()),
            _ => format!("sqlite://{}", self.folder.path().join("locks.db").display()),
        }
    }

    /// The address without anything in between.
    pub(crate) fn direct(&self) -> String {
        let addrs: Vec<_> = self.nodes.iter().map(|node| node.server().addr()).collect();
        self.url(&addrs)
    }

    /// A new way to all servers, on which faults can be put.
    pub(crate) async fn line(&self) -> Result<Line> {
        let mut proxies = Vec::new();
        for node in &self.nodes {
            proxies.push(Proxy::start(node.server().addr()).await.map_err(|error| failed(error.into()))?);
        }
        let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
        Ok(Line { url: self.url(&addrs), proxies })
    }
}

/// The longest lease of a Redlock whose nodes forget: as long they have no vote after a start.
const LONGEST_TTL: std::time::Duration = std::time::Duration::from_secs(3);

#[expect(clippy::needless_pass_by_value, reason = "as map_err wants it")]
pub(crate) fn failed(error: testbed::Error) -> Error {
    Error::failed(error.to_string())
}
