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
use self::raw::{Raw, Server};
use self::redis::RedisFloor;
use self::sqlite::SqliteFloor;
use self::zookeeper::ZooKeeperFloor;
use crate::error::Result;
use crate::stats::Sample;

/// A bare connection, ready for raw cycles. Where nothing raw is known there are figures, and no ratios.
#[derive(Debug)]
pub(crate) struct Floor(Option<Box<dyn Raw>>);

impl Floor {
    /// Connects, and makes its own table where the backend's is.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let url: &ServerUrl = &url.parse()?;
        let raw: Box<dyn Raw> = match url.scheme() {
            "memory" => Box::new(MemoryFloor::default()),
            "sqlite" => Box::new(SqliteFloor::connect(url).await?),
            "postgres" | "postgresql" => Box::new(PostgresFloor::connect(url).await?),
            "mysql" | "mariadb" => Box::new(MySqlFloor::connect(url).await?),
            "redis" | "redlock" => Box::new(RedisFloor::connect(url).await?),
            "zk" => Box::new(ZooKeeperFloor::connect(url).await?),
            "etcd" if url.user().is_none() => Box::new(EtcdFloor::connect(url).await?),
            // A backend from outside, servers that redirect clients or want certificates, or etcd with a login.
            _ => return Ok(Self(None)),
        };
        Ok(Self(Some(raw)))
    }

    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// What a cycle of the floor does, for those who read the results.
    pub(crate) fn what(&self) -> &'static str {
        self.0.as_ref().map_or("none that is known for such a server", |raw| raw.what())
    }

    /// One batch of cycles on the name with this number.
    pub(crate) async fn cycles(&mut self, name: usize) -> Result<()> {
        match &mut self.0 {
            Some(raw) => raw.cycle(name).await,
            None => Ok(()),
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
        self.0.as_ref().is_some_and(|raw| raw.shares())
    }

    /// Cycles on `names` names for as long as `length`: in turn, one at a time, where a connection serves one
    /// at a time, and all at once on Redis, ZooKeeper and etcd, whose clients share a connection.
    pub(crate) async fn round(&mut self, length: Duration, names: usize) -> Result<Sample> {
        let mut sample = Sample::new();
        let Some(raw) = &mut self.0 else { return Ok(sample) };
        if names > 1 && raw.shares() {
            return raw.crowd(length, names).await;
        }
        let began = Instant::now();
        for name in (0..names).cycle() {
            let start = Instant::now();
            if start.duration_since(began) >= length {
                break;
            }
            raw.cycle(name).await?;
            sample.note(start.elapsed(), raw.batch());
        }
        sample.close(began);
        Ok(sample)
    }

    /// The server's version, and those of its settings that decide what a commit costs.
    pub(crate) async fn server(&mut self) -> Result<Server> {
        match &mut self.0 {
            Some(raw) => raw.server().await,
            None => Ok(Server { version: "unknown".to_owned(), settings: Vec::new() }),
        }
    }

    /// Drops the table and closes the connection.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.0 {
            Some(raw) => raw.finish().await,
            None => Ok(()),
        }
    }
}
