//! The servers of one run, and the ways to them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use testbed::{
    Certificates, Durability, Etcd, EtcdCluster, MariaDb, Options, Postgres, Proxy, Redis, RedisCluster,
    RedisSentinel, Server, ZooKeeper, ZooKeeperEnsemble,
};

use super::clocks::{Clocks, SmallDisk};
use super::kind::{Kind, Memory, Setup};
use crate::error::{Error, Result};

/// Servers, which end with this.
#[derive(Debug)]
pub(crate) struct TestServers {
    pub(crate) kind: Kind,
    pub(crate) nodes: Vec<Node>,
    /// The replica that can be promoted.
    pub(crate) standby: Option<Node>,
    pub(crate) clocks: Option<Clocks>,
    pub(crate) disk: Option<SmallDisk>,
    pub(crate) ensemble: Option<ZooKeeperEnsemble>,
    pub(crate) etcd: Option<EtcdCluster>,
    pub(crate) sentinels: Option<RedisSentinel>,
    pub(crate) cluster: Option<RedisCluster>,
    pub(crate) certificates: Option<Certificates>,
    memory: Memory,
    grace: Duration,
    /// Where the server is, since another has taken over.
    moved: Mutex<Option<SocketAddr>>,
    folder: TempDir,
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Redis(Redis),
    Postgres(Postgres),
    MariaDb(MariaDb),
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
}

impl Node {
    pub(crate) fn server(&self) -> &Server {
        match self {
            Self::Redis(server) => server,
            Self::Postgres(server) => server,
            Self::MariaDb(server) => server,
            Self::ZooKeeper(server) => server,
            Self::Etcd(server) => server,
        }
    }

    /// Where clients connect to.
    fn entrance(&self) -> SocketAddr {
        match self {
            Self::Redis(server) => server.peer_addr(),
            _ => self.server().addr(),
        }
    }
}

/// A client's own way to all servers.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) url: String,
}

impl TestServers {
    /// Starts the servers. Their data is in memory where that is possible: the scenarios are about locks, not
    /// about disks.
    pub(crate) async fn start(kind: Kind, memory: Memory, setup: Setup) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("lockwell-faults-").tempdir_in(&parent)?;
        let clocks = setup.has_clocks().then(|| Clocks::make(folder.path())).transpose()?;
        let disk = (setup == Setup::SmallDisk).then(|| SmallDisk::mount(&folder.path().join("disk")));
        let mut servers = Self {
            kind,
            nodes: Vec::new(),
            standby: None,
            clocks,
            disk: disk.transpose()?,
            ensemble: None,
            etcd: None,
            sentinels: None,
            cluster: None,
            certificates: None,
            memory,
            grace: setup.grace(),
            moved: Mutex::default(),
            folder,
        };
        let durability = match (memory, kind) {
            (Memory::Forgets, _) => Durability::Fast,
            // A node of Redlock that answers before its change is on the disk has no vote for a while after
            // its start.
            (Memory::Keeps, Kind::Redlock3) => Durability::Disk,
            (Memory::Keeps, _) => Durability::OsCache,
        };
        servers.launch(&Options::new().durability(durability).parent(&parent), setup).await?;
        if kind == Kind::Redlock3 && memory == Memory::Forgets {
            // Until the new nodes have a vote.
            tokio::time::sleep(LONGEST_TTL + Duration::from_secs(1)).await;
        }
        Ok(servers)
    }

    async fn launch(&mut self, options: &Options, setup: Setup) -> Result<()> {
        // The tick is the grain of the time of ZooKeeper, and leases are short here.
        let longest = LONGEST_SESSION.to_string();
        let ticking =
            options.clone().setting("tickTime", TICK.to_string()).setting("maxSessionTimeout", longest);
        match self.kind {
            Kind::Memory | Kind::Sqlite => (),
            Kind::Postgres => self.postgres(options, setup).await?,
            Kind::Mariadb if setup.has_standby() => self.mariadb_with_standby(options).await?,
            Kind::Mariadb => {
                let server = MariaDb::start_with(&self.timed(options, 0)?).await.map_err(failed)?;
                self.nodes.push(Node::MariaDb(server));
            }
            Kind::Redis if setup == Setup::GraceCluster => {
                let cluster = RedisCluster::start_with_replicas(3, options).await.map_err(failed)?;
                let nodes = cluster.nodes().iter().chain(cluster.replicas());
                self.nodes = nodes.cloned().map(Node::Redis).collect();
                self.cluster = Some(cluster);
            }
            Kind::Redis | Kind::Redlock3 => {
                let mut options = options.clone();
                if setup == Setup::Tls {
                    let certificates = Certificates::make().map_err(failed)?;
                    options = options.tls(&certificates);
                    self.certificates = Some(certificates);
                }
                let options = &options;
                for node in 0..self.kind.nodes() {
                    let server = Redis::start_with(&self.timed(options, node)?).await.map_err(failed)?;
                    if setup.has_standby() {
                        let standby = Redis::start_replica(server.addr(), options).await.map_err(failed)?;
                        self.standby = Some(Node::Redis(standby));
                    }
                    self.nodes.push(Node::Redis(server));
                }
            }
            Kind::Sentinel => {
                let group = RedisSentinel::start_with(options).await.map_err(failed)?;
                self.nodes = [group.master(), group.replica()].map(|node| Node::Redis(node.clone())).into();
                self.sentinels = Some(group);
            }
            Kind::Zookeeper => {
                let server = ZooKeeper::start_with(&self.timed(&ticking, 0)?).await.map_err(failed)?;
                self.nodes.push(Node::ZooKeeper(server));
            }
            Kind::Zookeeper3 => {
                let ticking = ticking.setting("syncLimit", "10").setting("initLimit", "50");
                let ticking = self.timed(&ticking, 0)?;
                let ensemble = match setup {
                    Setup::Links => ZooKeeperEnsemble::start_with_links(3, &ticking).await,
                    _ => ZooKeeperEnsemble::start(3, &ticking).await,
                };
                let ensemble = ensemble.map_err(failed)?;
                self.nodes.extend(ensemble.servers().iter().cloned().map(Node::ZooKeeper));
                self.ensemble = Some(ensemble);
            }
            Kind::Etcd => self.nodes.push(Node::Etcd(Etcd::start_with(options).await.map_err(failed)?)),
            Kind::Etcd3 => {
                let cluster = EtcdCluster::start(3, options).await.map_err(failed)?;
                self.nodes.extend(cluster.members().iter().cloned().map(Node::Etcd));
                self.etcd = Some(cluster);
            }
        }
        Ok(())
    }

    async fn postgres(&mut self, options: &Options, setup: Setup) -> Result<()> {
        let mut options = self.timed(options, 0)?.setting("max_connections", "300");
        if !setup.grace().is_zero() {
            // A crash loses what was granted in this time.
            options = options.setting("wal_writer_delay", "10s");
        }
        let server = Postgres::start_with(&options).await.map_err(failed)?;
        if setup.has_standby() {
            let standby = server.start_standby(&options).await.map_err(failed)?;
            self.standby = Some(Node::Postgres(standby));
        }
        self.nodes.push(Node::Postgres(server.clone()));
        if !setup.grace().is_zero() {
            // The first grants wait for the disk for a while.
            let locks = lockwell::connect(self.url(&[server.addr()])).await?;
            locks.lock("first").await?.release().await?;
            locks.close().await?;
            let is_old = "UPDATE lockwell_locks_state SET lazy_since = 0";
            server.admin_sql(is_old).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn mariadb_with_standby(&mut self, options: &Options) -> Result<()> {
        let numbered = |number: &str| options.clone().setting("server-id", number);
        let old = MariaDb::start_with(&numbered("1").setting("log-bin", "log")).await.map_err(failed)?;
        let new = MariaDb::start_with(&numbered("2")).await.map_err(failed)?;
        let follow = format!(
            "CHANGE MASTER TO master_host='127.0.0.1', master_port={}, master_user='root', \
             master_use_gtid=slave_pos; START SLAVE",
            old.addr().port()
        );
        new.admin_sql(&follow).await.map_err(failed)?;
        // An administrator may write to a server that is read only.
        let user = format!("CREATE USER {USER}@'%'; GRANT ALL ON lockwell.* TO {USER}@'%'");
        old.admin_sql(&user).await.map_err(failed)?;
        self.nodes.push(Node::MariaDb(old));
        self.standby = Some(Node::MariaDb(new));
        Ok(())
    }

    /// With a clock of its own, if clocks can be stepped. The members of an ensemble share one.
    fn timed(&self, options: &Options, node: u32) -> Result<Options> {
        let Some(clocks) = &self.clocks else { return Ok(options.clone()) };
        let environment = clocks.environment(&server_clock(node))?;
        Ok(environment
            .into_iter()
            .fold(options.clone(), |options, (name, value)| options.environment(name, value)))
    }

    /// The file of `SQLite`.
    pub(crate) fn file(&self) -> PathBuf {
        let folder = self.disk.as_ref().map_or(self.folder.path(), SmallDisk::folder);
        folder.join("locks.db")
    }

    /// The address by which clients find the servers at these addresses.
    fn url(&self, addrs: &[SocketAddr]) -> String {
        let url = self.plain_url(addrs);
        if self.grace.is_zero() {
            // By default they grant nothing after a failover until all leases have ended.
            return if self.sentinels.is_some() { url + "?durability=server" } else { url };
        }
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}durability=grace&longest_ttl={}s", self.grace.as_secs())
    }

    fn plain_url(&self, addrs: &[SocketAddr]) -> String {
        let first = addrs.first().copied();
        match (self.nodes.first(), first) {
            (Some(Node::Postgres(server)), Some(addr)) => server.url_via(addr),
            (Some(Node::MariaDb(server)), Some(addr)) => {
                let url = server.url_via(addr);
                if self.standby.is_some() { url.replace("root@", &format!("{USER}@")) } else { url }
            }
            (Some(Node::Redis(server)), Some(addr)) => self.redis_url(server, addr, addrs),
            (Some(Node::ZooKeeper(server)), Some(addr)) => match &self.ensemble {
                // A server that is too busy to tell its tick would be taken for one with a longer tick.
                Some(ensemble) => format!("{}?tick={TICK}ms", ensemble.url_via(addrs)),
                None => server.url_via(addr),
            },
            (Some(Node::Etcd(server)), Some(addr)) => match &self.etcd {
                Some(cluster) => cluster.url_via(addrs),
                None => server.url_via(addr),
            },
            _ if self.kind == Kind::Memory => format!("memory://{}", self.folder.path().display()),
            _ => format!("sqlite://{}", self.file().display()),
        }
    }

    fn redis_url(&self, server: &Redis, first: SocketAddr, addrs: &[SocketAddr]) -> String {
        if let Some(group) = &self.sentinels {
            return group.url();
        }
        if let Some(cluster) = &self.cluster {
            return cluster.url();
        }
        let (secure, options) = match (&self.certificates, self.memory) {
            (Some(files), _) => {
                let [ca, cert, key] = ["ca.pem", "ours.pem", "ours.key"].map(|file| files.path(file));
                ("s", format!("?ca={ca}&cert={cert}&key={key}"))
            }
            (None, Memory::Forgets) if self.kind == Kind::Redlock3 => {
                ("", format!("?longest_ttl={}s", LONGEST_TTL.as_secs()))
            }
            (None, _) => ("", String::new()),
        };
        if self.kind == Kind::Redlock3 {
            let nodes: Vec<_> = addrs.iter().map(ToString::to_string).collect();
            return format!("redlock{secure}://{}{options}", nodes.join(","));
        }
        let plain = server.url_via(first) + &options;
        if secure.is_empty() { plain } else { plain.replacen("redis://", "rediss://", 1) }
    }

    /// The address without anything in between.
    pub(crate) fn direct(&self) -> String {
        let moved = *self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        match moved {
            Some(addr) => self.url(&[addr]),
            None => self.url(&self.nodes.iter().map(Node::entrance).collect::<Vec<_>>()),
        }
    }

    /// The server is at another address from now on.
    pub(crate) fn moved(&self, addr: SocketAddr) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }

    /// A new way to all servers, on which faults can be put.
    pub(crate) async fn line(&self) -> Result<Line> {
        let mut targets: Vec<_> = self.nodes.iter().map(Node::entrance).collect();
        if !self.kind.has_lines() || self.cluster.is_some() {
            targets.clear();
        }
        let mut proxies = Vec::new();
        for target in targets {
            proxies.push(Proxy::start(target).await.map_err(failed)?);
        }
        let addrs: Vec<_> = proxies.iter().map(Proxy::addr).collect();
        let url = if addrs.is_empty() { self.direct() } else { self.url(&addrs) };
        Ok(Line { proxies, url })
    }
}

/// The unit of time of a `ZooKeeper`, in milliseconds.
const TICK: u64 = 200;

/// The longest session of a `ZooKeeper`, in milliseconds.
const LONGEST_SESSION: u64 = 60_000;

/// A user of `MariaDB` without the rights of an administrator.
const USER: &str = "app";

/// What the clock of a server is called.
pub(crate) fn server_clock(node: u32) -> String {
    format!("server-{node}")
}

/// What that of a worker is called.
pub(crate) fn worker_clock(worker: u32) -> String {
    format!("worker-{worker}")
}

/// The longest lease of a Redlock whose nodes forget: as long they have no vote after a start.
const LONGEST_TTL: Duration = Duration::from_secs(3);

pub(crate) fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed(error.to_string())
}
