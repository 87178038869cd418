//! The floor: what the same server does for raw statements on one bare connection of the same client crate.
//!
//! A cycle is what any lock on that server has to do at least: one statement that takes a row with owner,
//! token and expiry, one that clears it; on Redis, one command that sets a key and one that deletes it; on
//! ZooKeeper, the same with an ephemeral node; on etcd, two transactions. No lease is renewed, nobody waits,
//! nothing is cleaned up. What lockwell adds to that is the ratio that the comparison shows.

mod etcd;
mod memory;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod raw;
pub(crate) mod redis;
mod sqlite;
pub(crate) mod words;
mod zookeeper;

use std::time::{Duration, Instant};

use lockwell::backend::ServerUrl;

use self::etcd::EtcdFloor;
use self::memory::MemoryFloor;
use self::mysql::MySqlFloor;
use self::postgres::PostgresFloor;
use self::redis::RedisFloor;
use self::sqlite::SqliteFloor;
use self::zookeeper::ZooKeeperFloor;
use crate::error::Result;
use crate::measure::floor::raw::Server;
use crate::stats::Sample;

/// A bare connection, ready for raw cycles.
#[derive(Debug)]
pub(crate) enum Floor {
    Memory(MemoryFloor),
    Sqlite(Box<SqliteFloor>),
    Postgres(Box<PostgresFloor>),
    MySql(Box<MySqlFloor>),
    Redis(Box<RedisFloor>),
    ZooKeeper(Box<ZooKeeperFloor>),
    Etcd(Box<EtcdFloor>),
    /// Nothing raw is known: there are figures, and no ratios.
    Unknown,
}

impl Floor {
    /// Connects, and makes its own table where the backend's is.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let url: &ServerUrl = &url.parse()?;
        match url.scheme() {
            "memory" => Ok(Self::Memory(MemoryFloor::new())),
            "sqlite" => Ok(Self::Sqlite(Box::new(SqliteFloor::connect(url).await?))),
            "postgres" | "postgresql" => Ok(Self::Postgres(Box::new(PostgresFloor::connect(url).await?))),
            "mysql" | "mariadb" => Ok(Self::MySql(Box::new(MySqlFloor::connect(url).await?))),
            "redis" | "redlock" => Ok(Self::Redis(Box::new(RedisFloor::connect(url).await?))),
            "zk" => Ok(Self::ZooKeeper(Box::new(ZooKeeperFloor::connect(url).await?))),
            "etcd" | "etcds" => Ok(Self::Etcd(Box::new(EtcdFloor::connect(url).await?))),
            // A backend from outside, or servers that redirect clients, or Redis that wants certificates.
            _ => Ok(Self::Unknown),
        }
    }

    /// What a cycle of the floor does, for those who read the results.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Memory(_) => "lock and unlock of a tokio::sync::Mutex",
            Self::Sqlite(_) | Self::Postgres(_) => {
                "INSERT .. ON CONFLICT .. RETURNING, then UPDATE; one bare sqlx connection"
            }
            Self::MySql(_) => {
                "INSERT .. ON DUPLICATE KEY UPDATE .. RETURNING, then UPDATE; one bare sqlx connection"
            }
            Self::Redis(floor) => floor.what(),
            Self::ZooKeeper(_) => {
                "create of an ephemeral sequential node, then delete; one bare zookeeper-client session"
            }
            Self::Etcd(_) => {
                "transaction that puts a key of a lease if there is none, then one that deletes it; one bare tonic channel"
            }
            Self::Unknown => "none that is known for such a server",
        }
    }

    /// How many cycles are timed together. More than one where reading the clock costs as much as a cycle.
    fn batch(&self) -> u32 {
        match self {
            Self::Memory(_) => 100,
            _ => 1,
        }
    }

    /// One batch of cycles on the name with this number.
    pub(crate) async fn cycles(&mut self, name: usize) -> Result<()> {
        match self {
            Self::Memory(floor) => {
                floor.cycles(name, 100).await;
                Ok(())
            }
            Self::Sqlite(floor) => floor.cycle(name).await,
            Self::Postgres(floor) => floor.cycle(name).await,
            Self::MySql(floor) => floor.cycle(name).await,
            Self::Redis(floor) => floor.cycle(name).await,
            Self::ZooKeeper(floor) => floor.cycle(name).await,
            Self::Etcd(floor) => floor.cycle(name).await,
            Self::Unknown => Ok(()),
        }
    }

    /// Makes the rows and the prepared statements, so that no round pays for them.
    pub(crate) async fn warm_up(&mut self, names: usize) -> Result<()> {
        for name in 0..names {
            self.cycles(name).await?;
        }
        Ok(())
    }

    /// Whether cycles on several names share the connection.
    pub(crate) fn shares(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::ZooKeeper(_) | Self::Etcd(_))
    }

    /// Cycles on `names` names for as long as `length`: in turn, one at a time, where a connection serves one
    /// at a time, and all at once on Redis, ZooKeeper and etcd, whose clients share a connection.
    pub(crate) async fn round(&mut self, length: Duration, names: usize) -> Result<Sample> {
        match self {
            Self::Redis(floor) if names > 1 => return floor.crowd(length, names).await,
            Self::ZooKeeper(floor) if names > 1 => return floor.crowd(length, names).await,
            Self::Etcd(floor) if names > 1 => return floor.crowd(length, names).await,
            Self::Unknown => return Ok(Sample::new()),
            _ => {}
        }
        let batch = self.batch();
        let mut sample = Sample::new();
        let began = Instant::now();
        for name in (0..names).cycle() {
            let start = Instant::now();
            if start.duration_since(began) >= length {
                break;
            }
            self.cycles(name).await?;
            sample.note(start.elapsed(), batch);
        }
        sample.close(began);
        Ok(sample)
    }

    /// Round trips of a request that reads nothing and writes nothing, with a pause before each: a machine
    /// that dozes answers later. `None` where there is no server.
    pub(crate) async fn trips(&mut self, length: Duration, pause: Duration) -> Result<Option<Sample>> {
        let mut sample = Sample::new();
        let began = Instant::now();
        while began.elapsed() < length {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let start = Instant::now();
            match self {
                Self::Memory(_) | Self::Sqlite(_) | Self::Unknown => return Ok(None),
                Self::Postgres(floor) => floor.trip().await?,
                Self::MySql(floor) => floor.trip().await?,
                Self::Redis(floor) => floor.trip().await?,
                Self::ZooKeeper(floor) => floor.trip().await?,
                Self::Etcd(floor) => floor.trip().await?,
            }
            sample.note(start.elapsed(), 1);
        }
        Ok(Some(sample))
    }

    /// The server's version, and those of its settings that decide what a commit costs.
    pub(crate) async fn server(&mut self) -> Result<Server> {
        match self {
            Self::Memory(_) => Ok(Server { version: "in this process".to_owned(), settings: Vec::new() }),
            Self::Sqlite(floor) => floor.server().await,
            Self::Postgres(floor) => floor.server().await,
            Self::MySql(floor) => floor.server().await,
            Self::Redis(floor) => floor.server().await,
            Self::ZooKeeper(floor) => floor.server().await,
            Self::Etcd(floor) => floor.server().await,
            Self::Unknown => Ok(Server { version: "unknown".to_owned(), settings: Vec::new() }),
        }
    }

    /// Drops the table and closes the connection.
    pub(crate) async fn finish(self) -> Result<()> {
        match self {
            // The keys of Redis are gone already.
            Self::Memory(_) | Self::Redis(_) | Self::Unknown => Ok(()),
            Self::Sqlite(floor) => floor.finish().await,
            Self::Postgres(floor) => floor.finish().await,
            Self::MySql(floor) => floor.finish().await,
            Self::ZooKeeper(floor) => floor.finish().await,
            Self::Etcd(floor) => floor.finish().await,
        }
    }
}
