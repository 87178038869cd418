//! A feature of `lockwell` brings the packages that it needs, and none that only another backend needs.

use crate::msrv::tree;

/// One system, since dependencies differ from system to system.
const SYSTEM: &str = "x86_64-unknown-linux-gnu";

/// Features as an application chooses them.
const CHOICES: [&str; 11] = [
    "",
    "sqlite",
    "sqlite-unbundled",
    "postgres",
    "mysql",
    "redis",
    "zk",
    "etcd",
    "metrics",
    "postgres,redis,tls",
    "postgres,mysql,sqlite,redis,zk,etcd,tls,sasl",
];

/// Packages that only these features may bring.
const OWN: [(&[&str], &[&str]); 8] = [
    (&["sqlite", "sqlite-unbundled"], &["libsqlite3-sys", "sqlx-sqlite", "notify"]),
    (&["postgres"], &["sqlx-postgres"]),
    (&["mysql"], &["sqlx-mysql"]),
    (&["redis"], &["redis", "lockwell-redis"]),
    (&["zk"], &["zookeeper-client", "lockwell-zk"]),
    (&["etcd"], &["tonic", "prost", "lockwell-etcd"]),
    (&["tls"], &["rustls"]),
    (&["metrics"], &["metrics"]),
];

#[test]
fn no_backend_brings_what_only_another_needs() {
    for choice in CHOICES {
        let tree = tree(choice, SYSTEM).unwrap();
        for (owners, names) in OWN {
            let is_chosen = choice.split(',').any(|feature| owners.contains(&feature));
            for name in names {
                let is_there = tree.iter().any(|package| package.split(' ').next() == Some(name));
                // One that is not there at all may be called otherwise now.
                assert_eq!(is_there, is_chosen, "{name} with the features {choice:?}");
            }
        }
    }
}
