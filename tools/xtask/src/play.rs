//! `cargo xtask servers NAME...`: servers to experiment with, until Ctrl-C.

use std::any::Any;
use std::process::ExitCode;

use testbed::{
    Etcd, EtcdCluster, Family, MariaDb, Options, Postgres, Redis, RedisCluster, RedisSentinel, Release,
    ZooKeeper, ZooKeeperEnsemble,
};

use crate::shell::Result;

/// How many nodes Redlock has here, and how many servers a group.
const REDLOCK: usize = 5;
const GROUP: usize = 3;

/// The option of a group of Redis servers that are trusted to keep each grant: new ones would grant nothing
/// for half a minute.
const KEEPS: &str = "?durability=server";

/// What is not a release.
const NAMES: [&str; 10] = [
    "redis",
    "redlock",
    "sentinel",
    "cluster",
    "postgres",
    "mariadb",
    "zookeeper",
    "zookeeper3",
    "etcd",
    "etcd3",
];

/// Servers that run until this is dropped, and their address.
struct Running {
    url: String,
    _servers: Box<dyn Any>,
}

/// Starts it, and has its address with these options.
macro_rules! started {
    ($start:expr, $options:expr) => {{
        let servers = $start.await.map_err(|error| error.to_string())?;
        Running { url: servers.url() + $options, _servers: Box::new(servers) }
    }};
}

pub(crate) fn run(names: &[String]) -> Result<ExitCode> {
    check(names)?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut all = Vec::new();
        for name in names {
            // Ctrl-C while they start also stops those that run already.
            let running = tokio::select! {
                running = start(name) => running?,
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::from(130)),
            };
            println!("{name}: {}", running.url);
            all.push(running);
        }
        println!("until Ctrl-C; their data goes with them");
        tokio::signal::ctrl_c().await.map_err(|error| error.to_string())?;
        drop(all);
        Ok(ExitCode::SUCCESS)
    })
}

/// Before anything is started.
fn check(names: &[String]) -> Result<()> {
    let releases = || Release::all().iter().map(Release::name);
    match names
        .iter()
        .find(|name| !NAMES.contains(&name.as_str()) && !releases().any(|it| it == name.as_str()))
    {
        None => Ok(()),
        Some(name) => {
            let known: Vec<_> =
                NAMES.into_iter().chain(releases().filter(|name| !NAMES.contains(name))).collect();
            Err(format!("there is no {name}, but {}", known.join(", ")))
        }
    }
}

async fn start(name: &str) -> Result<Running> {
    let release = Release::all().iter().find(|release| release.name() == name);
    // Whoever asks for servers may measure them.
    let options = Options::new().measured();
    let options = release.map_or_else(|| options.clone(), |release| options.clone().release(release));
    Ok(match (name, release.map(Release::family)) {
        ("redlock", _) => {
            let mut nodes = Vec::new();
            for _ in 0..REDLOCK {
                nodes.push(Redis::start_with(&options).await.map_err(|error| error.to_string())?);
            }
            let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
            Running { url: format!("redlock://{}", addresses.join(",")), _servers: Box::new(nodes) }
        }
        ("sentinel", _) => started!(RedisSentinel::start_with(&options), KEEPS),
        ("cluster", _) => started!(RedisCluster::start_with_replicas(GROUP, &options), KEEPS),
        ("zookeeper3", _) => started!(ZooKeeperEnsemble::start(GROUP, &options), ""),
        ("etcd3", _) => started!(EtcdCluster::start(GROUP, &options), ""),
        ("redis", _) | (_, Some(Family::Redis)) => started!(Redis::start_with(&options), ""),
        ("postgres", _) | (_, Some(Family::Postgres)) => started!(Postgres::start_with(&options), ""),
        ("mariadb", _) | (_, Some(Family::MySql)) => started!(MariaDb::start_with(&options), ""),
        ("zookeeper", _) | (_, Some(Family::ZooKeeper)) => started!(ZooKeeper::start_with(&options), ""),
        ("etcd", _) | (_, Some(Family::Etcd)) => started!(Etcd::start_with(&options), ""),
        _ => return Err(format!("{name} is no server of its own")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_anything_is_started() {
        let names = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(check(&names("redis zookeeper3 redis8")), Ok(()));
        let error = check(&names("redis mongodb")).unwrap_err();
        assert!(error.contains("no mongodb") && error.contains("cluster"), "{error}");
    }
}
