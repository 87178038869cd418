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
    _servers: Vec<Box<dyn Any>>,
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
    let one = |url: String, server: Box<dyn Any>| Running { url, _servers: vec![server] };
    let failed = |error: testbed::Error| error.to_string();
    Ok(match (name, release.map(Release::family)) {
        ("redlock", _) => {
            let mut nodes = Vec::new();
            for _ in 0..REDLOCK {
                nodes.push(Redis::start_with(&options).await.map_err(failed)?);
            }
            let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
            let nodes = nodes.into_iter().map(|node| Box::new(node) as Box<dyn Any>);
            Running { url: format!("redlock://{}", addresses.join(",")), _servers: nodes.collect() }
        }
        ("sentinel", _) => {
            let group = RedisSentinel::start_with(&options).await.map_err(failed)?;
            one(group.url() + KEEPS, Box::new(group))
        }
        ("cluster", _) => {
            let cluster = RedisCluster::start_with_replicas(GROUP, &options).await.map_err(failed)?;
            one(cluster.url() + KEEPS, Box::new(cluster))
        }
        ("zookeeper3", _) => {
            let ensemble = ZooKeeperEnsemble::start(GROUP, &options).await.map_err(failed)?;
            one(ensemble.url(), Box::new(ensemble))
        }
        ("etcd3", _) => {
            let cluster = EtcdCluster::start(GROUP, &options).await.map_err(failed)?;
            one(cluster.url(), Box::new(cluster))
        }
        ("redis", _) | (_, Some(Family::Redis)) => {
            let server = Redis::start_with(&options).await.map_err(failed)?;
            one(server.url(), Box::new(server))
        }
        ("postgres", _) | (_, Some(Family::Postgres)) => {
            let server = Postgres::start_with(&options).await.map_err(failed)?;
            one(server.url(), Box::new(server))
        }
        ("mariadb", _) | (_, Some(Family::MySql)) => {
            let server = MariaDb::start_with(&options).await.map_err(failed)?;
            one(server.url(), Box::new(server))
        }
        ("zookeeper", _) | (_, Some(Family::ZooKeeper)) => {
            let server = ZooKeeper::start_with(&options).await.map_err(failed)?;
            one(server.url(), Box::new(server))
        }
        ("etcd", _) | (_, Some(Family::Etcd)) => {
            let server = Etcd::start_with(&options).await.map_err(failed)?;
            one(server.url(), Box::new(server))
        }
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
