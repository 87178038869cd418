//! Families: what is one choice for somebody who chooses, whichever of its servers was measured.

use crate::record::{Backend, Report};

/// A family of backends.
struct Family {
    name: &'static str,
    /// Names of backends, and schemes of addresses that were given. The first that was measured stands for
    /// the family.
    members: &'static [&'static str],
    /// Whether it is a database that people run for something else.
    is_database: bool,
    /// Whether a transaction of the application can check the lock.
    verifies: bool,
    /// On what its promises depend, beside the failures of servers.
    provided: &'static str,
}

const GROUP: &str = "on three servers or more";
const GROUP_OF_ETCD: &str = "on three servers or more of release 3.4.31, 3.5.13 or newer";

/// `memory` is no member: nobody chooses between it and a server.
const FAMILIES: [Family; 7] = [
    Family { name: "SQLite", members: &["sqlite"], is_database: false, verifies: true, provided: "" },
    Family {
        name: "PostgreSQL",
        members: &["postgres", "postgresql", "postgres-grace"],
        is_database: true,
        verifies: true,
        provided: "",
    },
    Family {
        name: "MySQL/MariaDB",
        members: &["mariadb", "mysql"],
        is_database: true,
        verifies: true,
        provided: "",
    },
    Family {
        name: "Redis/Valkey",
        members: &[
            "redis",
            "rediss",
            "redis+unix",
            "valkey",
            "sentinel",
            "redis+sentinel",
            "rediss+sentinel",
            "cluster",
            "redis+cluster",
            "rediss+cluster",
        ],
        is_database: true,
        verifies: false,
        provided: "",
    },
    Family {
        name: "Redlock",
        members: &["redlock", "redlocks", "redlock3"],
        is_database: false,
        verifies: false,
        provided: "on three servers or more, if no clock of theirs steps forward",
    },
    Family {
        name: "ZooKeeper",
        members: &["zookeeper3", "zookeeper", "zk", "zookeeper3-leader"],
        is_database: false,
        verifies: false,
        provided: GROUP,
    },
    Family {
        name: "etcd",
        members: &["etcd3", "etcd", "etcds"],
        is_database: false,
        verifies: false,
        provided: GROUP_OF_ETCD,
    },
];

/// Within one process: there is nothing to choose.
pub(crate) const ONE_PROCESS: &str = "memory";

/// A family that was measured, and the backend that stands for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) family: String,
    /// Its name in the lines of figures.
    pub(crate) backend: String,
    pub(crate) provided: &'static str,
    pub(crate) across_hosts: bool,
    pub(crate) failover_safe: bool,
    /// Why a failover may grant a lock twice, where another release would not.
    pub(crate) old: Option<String>,
    pub(crate) durable: bool,
}

impl Candidate {
    /// Whether a transaction of the application can check the lock.
    pub(crate) fn verifies(&self) -> bool {
        known(&self.backend).is_some_and(|family| family.verifies)
    }

    /// Whether people run it for something else.
    pub(crate) fn is_database(&self) -> bool {
        known(&self.backend).is_some_and(|family| family.is_database)
    }
}

/// The name of the family of a backend: that of the backend itself, if it belongs to none.
pub(crate) fn family(backend: &str) -> &str {
    known(backend).map_or(backend, |family| family.name)
}

/// Whether this is an SQL database.
pub(crate) fn is_sql(backend: &str) -> bool {
    known(backend).is_some_and(|family| family.verifies)
}

/// Of each family the first of its members among these backends. Those of no family come last.
pub(crate) fn standing<'a>(backends: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let place = |backend: &str| {
        let number = FAMILIES.iter().position(|family| family.members.contains(&stem(backend)));
        let member =
            number.and_then(|it| FAMILIES[it].members.iter().position(|name| *name == stem(backend)));
        (number.unwrap_or(FAMILIES.len()), member)
    };
    let mut backends: Vec<&str> = backends.filter(|backend| *backend != ONE_PROCESS).collect();
    backends.sort_by_key(|backend| place(backend));
    let mut standing: Vec<&str> = Vec::new();
    for backend in backends {
        if !standing.iter().any(|before| family(before) == family(backend)) {
            standing.push(backend);
        }
    }
    standing
}

/// The families of these runs, each with the backend that stands for it.
pub(crate) fn candidates(runs: &[&Report]) -> Vec<Candidate> {
    let measured = || runs.iter().flat_map(|run| &run.backends);
    let standing = standing(measured().map(|backend| &*backend.name));
    let of_name = |name: &&str| measured().find(|backend| backend.name == *name).map(candidate);
    standing.iter().filter_map(of_name).collect()
}

fn candidate(backend: &Backend) -> Candidate {
    let known = known(&backend.name);
    let promises = |name: &str| backend.promises.get(name) == Some(&true);
    // Of servers of others, nobody knows how many they are.
    let is_ours = backend.storage != "unknown";
    let provided = match &*backend.name {
        "zookeeper" if is_ours => "on three servers or more, measured on one",
        "etcd" if is_ours => "on three servers or more of release 3.4.31, 3.5.13 or newer, measured on one",
        _ => known.map_or("", |family| family.provided),
    };
    // Several members of etcd make this promise, unless their release is an old one.
    let is_old = !promises("failover_safe") && family(&backend.name) == "etcd";
    Candidate {
        family: family(&backend.name).to_owned(),
        backend: backend.name.clone(),
        provided,
        across_hosts: promises("across_hosts"),
        failover_safe: promises("failover_safe"),
        old: is_old.then(|| format!("{}; fixed in 3.4.31 and 3.5.13", backend.version)),
        durable: survives_restart(backend),
    }
}

/// By its promise, and by the setting that the promise of Redis depends on: older result files have the
/// promise also without that setting, and Redlock makes it for the restart of one node.
fn survives_restart(backend: &Backend) -> bool {
    let keeps_no_log = backend.settings.get("appendonly").is_some_and(|value| value == "no");
    backend.promises.get("durable") == Some(&true) && !keeps_no_log
}

fn known(backend: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.members.contains(&stem(backend)))
}

/// Without the number of an address among several of its scheme: `redis-2`.
fn stem(backend: &str) -> &str {
    match backend.rsplit_once('-') {
        Some((stem, number)) if number.bytes().all(|it| it.is_ascii_digit()) => stem,
        _ => backend,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::tests::report;
    use crate::target::kind::Kind;

    /// A backend with the promises of this name.
    pub(crate) fn backend(name: &str, promises: &[&str]) -> Backend {
        Backend {
            name: name.to_owned(),
            address: String::new(),
            version: format!("{name} 1"),
            settings: BTreeMap::new(),
            storage: "ext4".to_owned(),
            floor: String::new(),
            promises: promises.iter().map(|name| ((*name).to_owned(), true)).collect(),
            shortest_lease_us: 10_000,
        }
    }

    #[test]
    fn every_kind_of_server_has_a_family() {
        for kind in Kind::all().iter().copied() {
            let is_known = known(kind.name()).is_some();
            assert_eq!(is_known, kind != Kind::Memory, "{}", kind.name());
        }
        let names = ["redis", "valkey", "sentinel", "cluster", "redis+sentinel", "redis-2"].map(family);
        assert!(names.iter().all(|name| *name == "Redis/Valkey"), "{names:?}");
        assert_eq!(family("zookeeper3-leader"), "ZooKeeper");
        assert_eq!(family("redlock3"), "Redlock");
        assert_eq!(family("etcd"), "etcd");
    }

    #[test]
    fn redis_without_its_log_survives_no_restart() {
        let mut redis = backend("redis", &["durable"]);
        assert!(candidate(&redis).durable);
        redis.settings.insert("appendonly".to_owned(), "no".to_owned());
        assert!(!candidate(&redis).durable);
    }

    #[test]
    fn an_old_release_of_etcd_is_named() {
        let mut etcd = backend("etcd3", &["across_hosts", "durable"]);
        etcd.version = "etcd 3.4.23".to_owned();
        assert_eq!(candidate(&etcd).old.as_deref(), Some("etcd 3.4.23; fixed in 3.4.31 and 3.5.13"));
        let newer = backend("etcd3", &["across_hosts", "durable", "failover_safe"]);
        assert_eq!(candidate(&newer).old, None);
        assert_eq!(candidate(&backend("redis", &["across_hosts"])).old, None);
    }

    #[test]
    fn one_of_each_family_stands_for_it() {
        let mut run = report();
        run.backends = ["valkey", "zookeeper", "memory", "redis", "etcd", "zookeeper3"]
            .map(|name| backend(name, &["across_hosts"]))
            .into();
        let candidates = candidates(&[&run]);
        let names: Vec<_> = candidates.iter().map(|it| (&*it.family, &*it.backend)).collect();
        assert_eq!(names, [("Redis/Valkey", "redis"), ("ZooKeeper", "zookeeper3"), ("etcd", "etcd")]);
        assert!(candidates.iter().all(|it| it.across_hosts && !it.failover_safe));
    }
}
