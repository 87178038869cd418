//! The kinds of servers.

use clap::ValueEnum;
use testbed::Release;

/// The releases of servers that no machine has installed.
pub(crate) const MYSQL: &str = "mysql9";

pub(crate) const VALKEY: &str = "valkey9";

/// A backend that can be started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Postgres,
    /// PostgreSQL whose grants do not wait for the disk (`durability=grace`).
    #[value(name = "postgres-grace")]
    PostgresGrace,
    Mariadb,
    /// The newest release, which `cargo xtask compare` fetches.
    Mysql,
    Redis,
    /// The newest release, which `cargo xtask compare` fetches.
    Valkey,
    /// Redis behind three sentinels, with one replica.
    Sentinel,
    /// Redis Cluster: three masters with a replica each.
    Cluster,
    /// Redlock on three independent Redis servers.
    Redlock3,
    /// Redlock on five independent Redis servers.
    Redlock,
    #[value(name = "zookeeper", alias = "zk")]
    ZooKeeper,
    /// An ensemble of three; clients are connected to a follower.
    #[value(name = "zookeeper3")]
    ZooKeeper3,
    /// An ensemble of three; clients are connected to the leader.
    #[value(name = "zookeeper3-leader")]
    ZooKeeper3Leader,
    /// One member of etcd.
    Etcd,
    /// Three members of etcd; clients are connected to a follower.
    Etcd3,
}

impl Kind {
    pub(crate) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Those that are compared if nothing else is said.
    pub(crate) const USUAL: [Self; 8] = [
        Self::Memory,
        Self::Sqlite,
        Self::Postgres,
        Self::Mariadb,
        Self::Redis,
        Self::Redlock,
        Self::ZooKeeper,
        Self::ZooKeeper3,
    ];

    pub(crate) fn name(self) -> &'static str {
        self.name_and_scheme().0
    }

    /// The scheme of its address.
    pub(super) fn scheme(self) -> &'static str {
        self.name_and_scheme().1
    }

    fn name_and_scheme(self) -> (&'static str, &'static str) {
        match self {
            Self::Memory => ("memory", "memory"),
            Self::Sqlite => ("sqlite", "sqlite"),
            Self::Postgres => ("postgres", "postgres"),
            Self::PostgresGrace => ("postgres-grace", "postgres"),
            Self::Mariadb => ("mariadb", "mariadb"),
            Self::Mysql => ("mysql", "mysql"),
            Self::Redis => ("redis", "redis"),
            Self::Valkey => ("valkey", "redis"),
            Self::Sentinel => ("sentinel", "redis+sentinel"),
            Self::Cluster => ("cluster", "redis+cluster"),
            Self::Redlock3 => ("redlock3", "redlock"),
            Self::Redlock => ("redlock", "redlock"),
            Self::ZooKeeper => ("zookeeper", "zk"),
            Self::ZooKeeper3 => ("zookeeper3", "zk"),
            Self::ZooKeeper3Leader => ("zookeeper3-leader", "zk"),
            Self::Etcd => ("etcd", "etcd"),
            Self::Etcd3 => ("etcd3", "etcd"),
        }
    }

    /// Why it cannot be started here, if it cannot.
    pub(crate) fn missing(self) -> Option<String> {
        let installed = match self {
            Self::Memory | Self::Sqlite => Ok(()),
            Self::Postgres | Self::PostgresGrace => testbed::Postgres::installed(),
            Self::Mariadb => testbed::MariaDb::installed(),
            Self::Mysql => Release::named(MYSQL).version().map(drop),
            Self::Valkey => Release::named(VALKEY).version().map(drop),
            Self::Redis | Self::Cluster | Self::Redlock | Self::Redlock3 => testbed::Redis::installed(),
            Self::Sentinel => testbed::RedisSentinel::installed(),
            Self::ZooKeeper | Self::ZooKeeper3 | Self::ZooKeeper3Leader => testbed::ZooKeeper::installed(),
            Self::Etcd | Self::Etcd3 => testbed::Etcd::installed(),
        };
        installed.err().map(|error| error.to_string())
    }
}
