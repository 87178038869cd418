//! The backends that scenarios run on, and how their servers are set up.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A backend that scenarios run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Workers are tasks of this process.
    Memory,
    /// A file of `SQLite`.
    Sqlite,
    /// One server of `PostgreSQL`.
    Postgres,
    /// One server of `MariaDB`.
    Mariadb,
    /// One server of Redis.
    Redis,
    /// Redis with one replica and three sentinels.
    Sentinel,
    /// Redlock on three servers.
    Redlock3,
    /// One server of `ZooKeeper`.
    Zookeeper,
    /// An ensemble of three.
    Zookeeper3,
    /// One member of etcd.
    Etcd,
    /// A cluster of three.
    Etcd3,
}

impl Kind {
    /// Every one.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::Sqlite,
        Self::Postgres,
        Self::Mariadb,
        Self::Redis,
        Self::Sentinel,
        Self::Redlock3,
        Self::Zookeeper,
        Self::Zookeeper3,
        Self::Etcd,
        Self::Etcd3,
    ];

    /// Those of the quick set: one of each kind.
    pub const QUICK: [Self; 5] = [Self::Sqlite, Self::Postgres, Self::Redis, Self::Zookeeper, Self::Etcd];

    /// As the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Redis => "redis",
            Self::Sentinel => "sentinel",
            Self::Redlock3 => "redlock3",
            Self::Zookeeper => "zookeeper",
            Self::Zookeeper3 => "zookeeper3",
            Self::Etcd => "etcd",
            Self::Etcd3 => "etcd3",
        }
    }

    /// The length of the leases.
    pub(crate) fn ttl(self) -> Duration {
        match self {
            // The shortest that it has.
            Self::Etcd | Self::Etcd3 => Duration::from_secs(2),
            _ => Duration::from_millis(1500),
        }
    }

    pub(crate) fn has_server(self) -> bool {
        !matches!(self, Self::Memory | Self::Sqlite)
    }

    /// Whether each worker has its own way to the servers. Behind sentinels clients are told the address of
    /// the master.
    pub(crate) fn has_lines(self) -> bool {
        self.has_server() && self != Self::Sentinel
    }

    pub(crate) fn is_sql_server(self) -> bool {
        matches!(self, Self::Postgres | Self::Mariadb)
    }

    pub(crate) fn is_redis(self) -> bool {
        matches!(self, Self::Redis | Self::Redlock3 | Self::Sentinel)
    }

    pub(crate) fn is_zookeeper(self) -> bool {
        matches!(self, Self::Zookeeper | Self::Zookeeper3)
    }

    pub(crate) fn is_etcd(self) -> bool {
        matches!(self, Self::Etcd | Self::Etcd3)
    }

    /// How many servers there are. Behind sentinels it is the first master: the replica is no target of its
    /// own.
    pub(crate) fn nodes(self) -> u32 {
        match self {
            Self::Memory | Self::Sqlite => 0,
            Self::Redlock3 | Self::Zookeeper3 | Self::Etcd3 => 3,
            _ => 1,
        }
    }

    /// Whether nobody takes over from a server that is in trouble.
    pub(crate) fn is_alone(self) -> bool {
        self.nodes() == 1 && self != Self::Sentinel
    }

    /// Whoever asked so much earlier than another was the first of them in the queue. `None`: waiters are not
    /// served in order.
    pub(crate) fn order(self) -> Option<Duration> {
        match self {
            Self::Redlock3 => None,
            // Processes that write to one file at the same time wait for each other in no order, and to enter
            // the queue is a write.
            Self::Sqlite => Some(Duration::from_secs(4)),
            _ => Some(Duration::from_millis(1500)),
        }
    }

    /// Whether it keeps records of jobs.
    pub(crate) fn has_records(self) -> bool {
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

/// What is particular about the servers, or about the ways to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Setup {
    #[default]
    Usual,
    /// There is an asynchronous replica, which can be promoted.
    Standby,
    /// `ZooKeeper`: the connections between the servers can be cut.
    Links,
    /// The wall clocks of servers and workers can be stepped.
    Clocks,
    /// `SQLite`: the file system is small.
    SmallDisk,
    /// Redis: clients and servers show each other certificates.
    Tls,
    /// A server that may have forgotten grants makes none for a while: `durability=grace`.
    Grace,
    /// The same, and there is an asynchronous replica, which can be promoted.
    GraceStandby,
    /// Redis: the same of three masters of a cluster, with a replica each.
    GraceCluster,
    /// The same as `Grace`, and the wall clocks of servers and workers can be stepped.
    GraceClocks,
}

impl Setup {
    /// The longest lease of servers with grace periods, which is the shortest that they allow: for so long
    /// they grant nothing after a fault. Zero: they have none.
    pub(crate) fn grace(self) -> Duration {
        let has_grace =
            matches!(self, Self::Grace | Self::GraceStandby | Self::GraceCluster | Self::GraceClocks);
        if has_grace { Duration::from_secs(4) } else { Duration::ZERO }
    }

    /// Whether wall clocks can be stepped.
    pub(crate) fn has_clocks(self) -> bool {
        matches!(self, Self::Clocks | Self::GraceClocks)
    }

    /// Whether there is an asynchronous replica.
    pub(crate) fn has_standby(self) -> bool {
        matches!(self, Self::Standby | Self::GraceStandby)
    }
}
