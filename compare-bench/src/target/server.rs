//! Starting the servers that are compared.

use std::any::Any;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use testbed::{Proxy, Release, Server};

use crate::error::{Error, Result};
use crate::record::disk::file_system;
use crate::target::kind::{Kind, MYSQL, VALKEY};
use crate::target::slow_disk;

/// How many servers Redlock is measured on: the number that its authors recommend.
const NODES: usize = 5;

/// The fewest of which one may fail.
const FEWEST_NODES: usize = 3;

/// How many servers the ensemble has: the usual number.
const MEMBERS: usize = 3;

/// How many masters the cluster has: the fewest that can agree.
const MASTERS: usize = 3;

/// The option of the address of raw commands that all their keys begin with.
pub(crate) const PREFIX: &str = "prefix";

/// Of a cluster.
const SLOTS: u16 = 16_384;

/// The unit of time of ZooKeeper, in milliseconds: that of its sample configuration. With the short one of
/// the testbed, a busy machine would end sessions.
const TICK: &str = "2000";

/// How many connections databases take: herds are larger than what they allow by themselves.
const CONNECTIONS: &str = "400";

/// The log of MySQL and of MariaDB, as large as by default. The testbed makes it small, to start soon. A
/// server whose log is full waits until its pages are on the disk.
const LOG_OF_MYSQL: (&str, &str) = ("innodb_redo_log_capacity", "100M");
const LOG_OF_MARIADB: (&str, &str) = ("innodb_log_file_size", "96M");

/// How the servers that we start are to be run: all alike, so that like is compared with like.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Where the data is.
    pub(crate) folder: PathBuf,
    pub(crate) durability: Durability,
    /// How long everything takes on its way to a server, and on its way back.
    pub(crate) delay: Duration,
    /// How much longer each sync takes than on this disk.
    pub(crate) sync_delay: Duration,
}

/// What a commit waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The disk. Redis syncs its append-only file at each write.
    #[default]
    Disk,
    /// The operating system: a crash of the server process loses nothing, a crash of the host may.
    Os,
    /// Nothing. Redis writes no file at all.
    None,
    /// What each server does if nothing is configured: databases, `ZooKeeper` and etcd wait for the disk, and
    /// Redis for nothing. Its snapshots, which lag by minutes, are left out, and so is the binary log of
    /// MySQL.
    Default,
}

impl Durability {
    /// As the command line and the file call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Os => "os",
            Self::None => "none",
            Self::Default => "default",
        }
    }

    /// Of such a server.
    fn of(self, kind: Kind) -> testbed::Durability {
        match self {
            Self::Default if is_redis(kind) => testbed::Durability::Fast,
            Self::Disk | Self::Default => testbed::Durability::Disk,
            Self::Os => testbed::Durability::OsCache,
            Self::None => testbed::Durability::Fast,
        }
    }
}

fn is_redis(kind: Kind) -> bool {
    kind.scheme().starts_with("redis") || kind.scheme() == "redlock"
}

/// What was started. Dropping it ends the servers and removes their data.
#[derive(Debug, Default)]
pub(crate) struct Running {
    servers: Vec<Server>,
    /// What ends servers and removes data when it is dropped.
    kept: Vec<Box<dyn Any + Send + Sync>>,
    lines: Vec<Proxy>,
    /// The address for raw statements, where it is another.
    floor: Option<String>,
}

impl Site {
    /// Starts a backend, and returns its address. Of an ensemble it names one member, always of the same role:
    /// clients pick a server at random, and the leader answers sooner than the others.
    pub(crate) async fn start(&self, kind: Kind) -> Result<(String, Running)> {
        let options = testbed::Options::new().measured();
        let options = options.parent(&self.folder).durability(self.durability.of(kind));
        let environment = slow_disk::environment().into_iter();
        let options = environment.fold(options, |options, (name, value)| options.environment(name, value));
        let mut running = Running::default();
        let url = match kind {
            Kind::Memory => "memory://".to_owned(),
            Kind::Sqlite => {
                let folder = tempfile::Builder::new().prefix("lockwell-compare-").tempdir_in(&self.folder)?;
                let file = folder.path().join("locks.db");
                running.kept.push(Box::new(folder));
                format!("sqlite://{}", file.display())
            }
            Kind::Postgres | Kind::PostgresGrace => {
                let options = options.setting("max_connections", CONNECTIONS);
                let server = testbed::Postgres::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                let url = server.url_via(addr);
                let url = if kind == Kind::Postgres {
                    url
                } else {
                    let sign = if url.contains('?') { '&' } else { '?' };
                    let with_grace = format!("{url}{sign}durability=grace");
                    running.floor = Some(url);
                    // The first grants wait for the disk for a while.
                    let locks = lockwell::connect(&with_grace).await?;
                    locks.lock("first").await?.release().await?;
                    locks.close().await?;
                    let is_old = "UPDATE lockwell_locks_state SET lazy_since = 0";
                    server.admin_sql(is_old).await.map_err(failed)?;
                    with_grace
                };
                running.keep_one(server);
                url
            }
            Kind::Mariadb | Kind::Mysql => {
                let (options, (log, size)) = match kind {
                    Kind::Mysql => (options.release(Release::named(MYSQL)), LOG_OF_MYSQL),
                    _ => (options, LOG_OF_MARIADB),
                };
                let options = options.setting("max_connections", CONNECTIONS).setting(log, size);
                let server = testbed::MariaDb::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                let url = server.url_via(addr);
                running.keep_one(server);
                url
            }
            Kind::Redis => format!("redis://{}", running.redis(&options, self.delay).await?),
            Kind::Valkey => {
                let options = options.release(Release::named(VALKEY));
                format!("redis://{}", running.redis(&options, self.delay).await?)
            }
            Kind::Sentinel => running.sentinel(&options, self.delay).await?,
            Kind::Cluster => running.cluster(&options, self.delay).await?,
            Kind::Redlock | Kind::Redlock3 => {
                let mut nodes = Vec::new();
                for _ in 0..if kind == Kind::Redlock { NODES } else { FEWEST_NODES } {
                    nodes.push(running.redis(&options, self.delay).await?);
                }
                format!("redlock://{}{}", nodes.join(","), self.probation().await)
            }
            Kind::ZooKeeper => {
                let options = options.setting("tickTime", TICK);
                let server = testbed::ZooKeeper::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                let url = server.url_via(addr);
                running.keep_one(server);
                url
            }
            Kind::ZooKeeper3 | Kind::ZooKeeper3Leader => {
                let options = options.setting("tickTime", TICK);
                let ensemble = testbed::ZooKeeperEnsemble::start(MEMBERS, &options).await.map_err(failed)?;
                let member = match kind {
                    Kind::ZooKeeper3 => ensemble.followers().await.map_err(failed)?[0],
                    _ => ensemble.leader().await.map_err(failed)?,
                };
                let addr = running.line(ensemble.addresses()[member], self.delay).await?;
                let url = ensemble.url_via(&[addr]);
                running.keep(ensemble.servers().iter().map(|it| Server::clone(it)).collect(), ensemble);
                url
            }
            Kind::Etcd => {
                let server = testbed::Etcd::start_with(&options).await.map_err(failed)?;
                let addr = running.line(server.addr(), self.delay).await?;
                let url = server.url_via(addr);
                running.keep_one(server);
                url
            }
            Kind::Etcd3 => {
                let members = testbed::EtcdCluster::start(MEMBERS, &options).await.map_err(failed)?;
                let leader = members.leader().await.map_err(failed)?;
                let follower = members.addresses()[(leader + 1) % MEMBERS];
                let addr = running.line(follower, self.delay).await?;
                let url = members.url_via(&[addr]);
                running.keep(members.members().iter().map(|it| Server::clone(it)).collect(), members);
                url
            }
        };
        Ok((url, running))
    }

    /// A node of Redlock that may have forgotten its locks has no vote for the length of the longest lease.
    /// Returns the options that make it short, when it is over.
    async fn probation(&self) -> &'static str {
        if self.durability == Durability::Disk {
            return "";
        }
        tokio::time::sleep(Duration::from_secs(7)).await;
        "?ttl=5s&longest_ttl=5s"
    }

    /// Why such a server cannot be run as it is to be run, if it cannot.
    pub(crate) fn refuses(&self, kind: Kind) -> Option<String> {
        let is_etcd = matches!(kind, Kind::Etcd | Kind::Etcd3);
        // It is written in Go, which makes system calls without the C library.
        (is_etcd && !self.sync_delay.is_zero()).then(|| "its syncs cannot be made longer".to_owned())
    }

    /// The file system that the data is on.
    pub(crate) fn file_system(&self) -> String {
        let name = file_system(&self.folder);
        if self.sync_delay.is_zero() {
            return name;
        }
        format!("{name} whose syncs take {} longer", humantime::format_duration(self.sync_delay))
    }

    /// Where the data of such a backend is.
    pub(crate) fn storage(&self, kind: Kind) -> String {
        let mut storage = match (kind, self.durability) {
            (Kind::Memory, _) => "memory".to_owned(),
            (kind, Durability::None | Durability::Default) if is_redis(kind) => "memory".to_owned(),
            _ => self.file_system(),
        };
        let is_zookeeper = matches!(kind, Kind::ZooKeeper | Kind::ZooKeeper3 | Kind::ZooKeeper3Leader);
        if is_zookeeper && !matches!(self.durability, Durability::Disk | Durability::Default) {
            // The others tell by themselves.
            storage.push_str(", forceSync=no");
        }
        if self.delay.is_zero() || matches!(kind, Kind::Memory | Kind::Sqlite) {
            return storage;
        }
        format!("{storage}, {} away", humantime::format_duration(self.delay))
    }
}

/// The option of a group of Redis servers that are trusted to keep each grant: new ones would grant nothing
/// for half a minute.
const KEEPS: &str = "?durability=server";

impl Running {
    async fn redis(&mut self, options: &testbed::Options, delay: Duration) -> Result<String> {
        let server = testbed::Redis::start_with(options).await.map_err(failed)?;
        let addr = self.line(server.addr(), delay).await?;
        self.keep_one(server);
        Ok(addr.to_string())
    }

    /// Returns the address of the sentinels, and keeps that of the master for the raw statements.
    async fn sentinel(&mut self, options: &testbed::Options, delay: Duration) -> Result<String> {
        let group = testbed::RedisSentinel::start_with(options).await.map_err(failed)?;
        let master = self.line(group.master().addr(), delay).await?;
        self.floor = Some(format!("redis://{master}"));
        let url = if delay.is_zero() {
            group.url()
        } else {
            // A sentinel that knows the master at the end of the long line.
            let (guide, name) = group.start_guide(master).await.map_err(failed)?;
            let url = format!("redis+sentinel://{}/{name}", guide.addr());
            self.keep_one(guide);
            url
        };
        let pair = [group.master(), group.replica()].map(|it| Server::clone(it));
        let all = pair.into_iter().chain(group.sentinels().iter().map(|it| Server::clone(it)));
        self.keep(all.collect(), group);
        Ok(url + KEEPS)
    }

    /// Three masters with replicas. The raw statements go to the first, with keys that belong there.
    async fn cluster(&mut self, options: &testbed::Options, delay: Duration) -> Result<String> {
        if !delay.is_zero() {
            return Err(Error::failed(
                "the nodes of a cluster send clients on, past a long line before them",
            ));
        }
        let cluster = testbed::RedisCluster::start_with_replicas(MASTERS, options).await.map_err(failed)?;
        let first = cluster.nodes()[0].addr();
        self.floor = Some(format!("redis://{first}?{PREFIX}={}", first_share()));
        let url = cluster.url() + KEEPS;
        let all = cluster.nodes().iter().chain(cluster.replicas()).map(|it| Server::clone(it));
        self.keep(all.collect(), cluster);
        Ok(url)
    }

    fn keep(&mut self, servers: Vec<Server>, group: impl Any + Send + Sync) {
        self.servers.extend(servers);
        self.kept.push(Box::new(group));
    }

    fn keep_one(&mut self, server: impl Deref<Target = Server> + Any + Send + Sync) {
        self.keep(vec![Server::clone(&server)], server);
    }

    /// Every server that was started.
    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    pub(super) fn floor(&self) -> Option<&str> {
        self.floor.as_deref()
    }

    /// The way to a server: a long line, if it is to be one.
    async fn line(&mut self, server: SocketAddr, delay: Duration) -> Result<SocketAddr> {
        if delay.is_zero() {
            return Ok(server);
        }
        let proxy = Proxy::start(server).await.map_err(|error| failed(error.into()))?;
        proxy.delay(delay);
        let addr = proxy.addr();
        self.lines.push(proxy);
        Ok(addr)
    }
}

/// A tag of keys that belong to the first of the masters, who share the slots in order.
fn first_share() -> String {
    let slot = |tag: &String| crc16::State::<crc16::XMODEM>::calculate(tag.as_bytes()) % SLOTS;
    let tags = (0..).map(|number| format!("floor{number}"));
    let tag = tags.into_iter().find(|tag| slot(tag) < SLOTS / 4).unwrap_or_default();
    // As an address has it: in braces.
    format!("%7B{tag}%7D")
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err wants it")]
fn failed(error: testbed::Error) -> Error {
    Error::failed(error.to_string())
}
