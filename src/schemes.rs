//! The schemes of the backends that are in this repository.

/// Each scheme and its Cargo feature.
pub(crate) const ALL: [(&str, &str); 18] = [
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
    ("etcd", "etcd"),
    ("etcds", "etcd"),
];

/// The Cargo feature of this scheme, if it belongs to this repository.
pub(crate) fn feature(scheme: &str) -> Option<&'static str> {
    ALL.iter().find(|(name, _)| *name == scheme).map(|(_, feature)| *feature)
}

/// The name of this scheme's backend, as its capabilities, metrics and errors have it, if the scheme belongs
/// to this repository.
pub(crate) fn backend(scheme: &str) -> Option<&'static str> {
    Some(match feature(scheme)? {
        "" => "memory",
        "zk" => "zookeeper",
        "redis" if scheme.starts_with("redlock") => "redlock",
        same => same,
    })
}

/// The scheme that is meant by what other programs call it.
pub(crate) fn meant(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "zookeeper" => "zk",
        "etcd3" | "etcd3+http" => "etcd",
        "etcd+tls" | "etcd3+https" => "etcds",
        "valkey" => "redis",
        "valkeys" | "redis+tls" | "redis+ssl" => "rediss",
        "unix" | "redis+socket" => "redis+unix",
        "sqlite3" | "file" => "sqlite",
        "pg" | "pgsql" | "postgre" | "psql" => "postgres",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_the_name_of_its_backend() {
        let named: [(&str, &[&str]); 8] = [
            ("memory", &["memory"]),
            ("sqlite", &["sqlite"]),
            ("postgres", &["postgres", "postgresql"]),
            ("mysql", &["mysql", "mariadb"]),
            (
                "redis",
                &[
                    "redis",
                    "rediss",
                    "redis+unix",
                    "redis+sentinel",
                    "rediss+sentinel",
                    "redis+cluster",
                    "rediss+cluster",
                ],
            ),
            ("redlock", &["redlock", "redlocks"]),
            ("zookeeper", &["zk"]),
            ("etcd", &["etcd", "etcds"]),
        ];
        let count: usize = named.iter().map(|(_, schemes)| schemes.len()).sum();
        assert_eq!(count, ALL.len(), "a scheme is missing here");
        for (name, schemes) in named {
            for scheme in schemes {
                assert_eq!(backend(scheme), Some(name), "{scheme}");
            }
        }
        assert_eq!(backend("example"), None);
    }
}
