//! The schemes of the backends that are in this repository.

use lockcore::MemoryLock;

use crate::Registry;

/// Each scheme and its Cargo feature.
pub(crate) const ALL: [(&str, &str); 16] = [
    ("memory", ""),
    ("sqlite", "sqlite"),
    ("postgres", "postgres"),
    ("postgresql", "postgres"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("redis+unix", "redis"),
    ("redis+sentinel", "redis"),
    ("rediss+sentinel", "redis"),
    ("redis+cluster", "redis"),
    ("rediss+cluster", "redis"),
    ("redlock", "redis"),
    ("redlocks", "redis"),
    ("zk", "zk"),
];

/// The Cargo feature of this scheme, if it belongs to this repository.
pub(crate) fn feature(scheme: &str) -> Option<&'static str> {
    ALL.iter().find(|(name, _)| *name == scheme).map(|(_, feature)| *feature)
}

/// The scheme that is meant by what other programs call it.
pub(crate) fn meant(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "zookeeper" => "zk",
        "valkey" => "redis",
        "valkeys" | "redis+tls" | "redis+ssl" => "rediss",
        "unix" | "redis+socket" => "redis+unix",
        "sqlite3" | "file" => "sqlite",
        "pg" | "pgsql" | "postgre" | "psql" => "postgres",
        _ => return None,
    })
}

/// Adds the backends that are compiled in.
pub(crate) fn compiled_in(mut registry: Registry) -> Registry {
    registry.add("memory", |url| std::future::ready(MemoryLock::from_url(&url)));
    #[cfg(feature = "sqlite")]
    {
        registry.add("sqlite", |url| async move { backend_sql::SqliteLock::connect(&url).await });
        registry.add_schema("sqlite");
    }
    #[cfg(feature = "postgres")]
    for scheme in ["postgres", "postgresql"] {
        registry.add(scheme, |url| async move { backend_sql::PostgresLock::connect(&url).await });
        registry.add_schema(scheme);
    }
    #[cfg(feature = "mysql")]
    for scheme in ["mysql", "mariadb"] {
        registry.add(scheme, |url| async move { backend_sql::MySqlLock::connect(&url).await });
        registry.add_schema(scheme);
    }
    #[cfg(feature = "redis")]
    for (scheme, _) in ALL.iter().filter(|(_, feature)| *feature == "redis") {
        if scheme.starts_with("redlock") {
            registry.add(scheme, |url| async move { backend_redis::Redlock::connect(&url).await });
        } else {
            registry.add(scheme, |url| async move { backend_redis::RedisLock::connect(&url).await });
        }
    }
    #[cfg(feature = "zk")]
    registry.add("zk", |url| async move { backend_zk::ZkLock::connect(&url).await });
    registry
}
