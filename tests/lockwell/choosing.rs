//! The table of promises in docs/choosing.md is what the backends say on running servers.

#![cfg(all(
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite",
    feature = "redis",
    feature = "zk",
    feature = "etcd"
))]

use std::time::Duration;

use lockwell::{Capabilities, Requirement};
use testbed::{Durability, Etcd, MariaDb, Options, Postgres, Redis, ZooKeeper, is_installed};

const GUIDE: &str = include_str!("../../docs/choosing.md");

/// The cells of a line of a table.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The column of the table that has this title: what it says of each promise, and of the bounds of a lease.
fn column(title: &str) -> Vec<(&'static str, &'static str)> {
    let mut lines = GUIDE.lines().skip_while(|line| !line.starts_with("| `require` |"));
    let head = cells(lines.next().expect("the table of promises"));
    let at =
        head.iter().position(|one| *one == title).unwrap_or_else(|| panic!("no column {title}: {head:?}"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.map(|row| (row[0].trim_matches('`'), row[at])).collect()
}

fn time(text: &str) -> Duration {
    match text {
        "10ms" => Duration::from_millis(10),
        "200ms" => Duration::from_millis(200),
        "2s" => Duration::from_secs(2),
        "4s" => Duration::from_secs(4),
        "40s" => Duration::from_secs(40),
        "1m" => Duration::from_secs(60),
        "1day" => Duration::from_secs(86_400),
        other => panic!("{other}: not a time of the table"),
    }
}

async fn agrees(title: &str, url: &str) {
    let locks = lockwell::connect(url).await.expect("a server").server_order();
    let promised: &Capabilities = locks.capabilities();
    let rows = column(title);
    for (name, said) in &rows {
        match *name {
            "shortest ttl" => assert_eq!(promised.min_ttl(), time(said), "{title}: {name}"),
            "longest ttl" => assert_eq!(promised.max_ttl(), time(said), "{title}: {name}"),
            _ => {
                let requirement: Requirement = name.parse().expect("a requirement");
                assert_eq!(promised.promises(requirement), *said == "yes", "{title}: {name} is {said}");
            }
        }
    }
    // The error names them all.
    let known = "no such thing".parse::<Requirement>().expect_err("unknown").to_string();
    let (_, known) = known.split_once("known are ").expect("a list");
    for name in known.split(", ") {
        assert!(rows.iter().any(|(one, _)| *one == name), "{name} is not in the table");
    }
    learns_them_with_the_first_lock(title, url).await;
}

/// A client that has not connected yet knows what the server promises from its first lock on, and its tasks hand
/// the lock on without a request, as those of other clients do.
async fn learns_them_with_the_first_lock(title: &str, url: &str) {
    let (locks, lazy) =
        (lockwell::connect(url).await.expect("a server"), lockwell::connect_lazy(url).expect("an address"));
    assert!(lazy.capabilities().is_presumed());
    lazy.lock("a").await.expect("a free lock").release().await.expect("held");
    assert_eq!(lazy.capabilities(), locks.capabilities(), "{title}");
    if !locks.capabilities().promises(Requirement::TokenBlocks) {
        return;
    }
    // On a machine that is busy, the slice may have ended.
    for _ in 0..100 {
        let guard = lazy.lock("a").await.expect("a free lock");
        let owner = async || {
            let guard = lazy.lock("a").await.expect("its turn comes");
            let owner = guard.grant().claim().owner();
            guard.release().await.expect("held");
            owner
        };
        let release = async { guard.release().await.expect("held") };
        let (one, two, three, ()) = tokio::join!(owner(), owner(), owner(), release);
        if one == two || two == three {
            return;
        }
    }
    panic!("{title}: each task has asked the server");
}

fn options() -> Options {
    Options::new().durability(Durability::OsCache)
}

#[tokio::test]
async fn memory_and_sqlite() {
    agrees("memory", "memory://").await;
    let folder = tempfile::tempdir().expect("a folder");
    agrees("SQLite", &format!("sqlite://{}", folder.path().join("locks.db").display())).await;
}

#[tokio::test]
async fn databases() {
    if is_installed(Postgres::installed()) {
        agrees("PostgreSQL", &Postgres::start_with(&options()).await.expect("a server").url()).await;
    }
    if is_installed(MariaDb::installed()) {
        agrees("MySQL, MariaDB", &MariaDb::start_with(&options()).await.expect("a server").url()).await;
    }
}

#[tokio::test]
async fn redis_and_redlock() {
    if is_installed(Redis::installed()) {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Redis::start_with(&options()).await.expect("a server"));
        }
        agrees("Redis", &nodes[0].url()).await;
        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        agrees("Redlock", &format!("redlock://{}", addrs.join(","))).await;
    }
}

#[tokio::test]
async fn zookeeper() {
    if is_installed(ZooKeeper::installed()) {
        let options = options().setting("tickTime", "2000");
        agrees("ZooKeeper", &ZooKeeper::start_with(&options).await.expect("a server").url()).await;
    }
}

#[tokio::test]
async fn etcd() {
    if is_installed(Etcd::installed()) {
        agrees("etcd", &Etcd::start_with(&options()).await.expect("a server").url()).await;
    }
}
