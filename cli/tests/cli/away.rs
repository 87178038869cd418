//! A lock server that is away for a moment: the wait covers it.

use std::time::{Duration, Instant};

#[cfg(feature = "mysql")]
use testbed::MariaDb;
#[cfg(feature = "redis")]
use testbed::{Redis, RedisCluster};
use testbed::{Server, if_installed};
#[cfg(feature = "zk")]
use testbed::{ZooKeeper, ZooKeeperEnsemble};

use crate::everyday::options;
use crate::support::{Finished, Running, Site, block_on, finish, lockwell};

/// For how long the servers are away.
const AWAY: Duration = Duration::from_secs(2);

/// How many messages say that the server is tried again.
fn messages(run: &Finished) -> usize {
    run.err.lines().filter(|line| line.contains("trying again for")).count()
}

/// Each verb with a wait, and a client of the library, get through a restart of these servers.
async fn a_wait_covers_a_restart(url: &str, servers: &[&Server]) {
    let site = Site::new();
    let start = |args: &[&str]| Running::start(site.lockwell(args).env("LOCKWELL_URL", url));
    assert_eq!(start(&["run", "--wait", "20s", "first", "--", "true"]).finish().status, 0);
    for server in servers {
        server.kill().unwrap();
    }
    let begun = Instant::now();
    finish(site.lockwell(&["run", "a", "--", "true"]).env("LOCKWELL_URL", url)).complains(69, "");
    finish(site.lockwell(&["run", "--no-wait", "a", "--", "true"]).env("LOCKWELL_URL", url))
        .complains(69, "");
    finish(site.lockwell(&["status"]).env("LOCKWELL_URL", url)).complains(69, "");
    assert!(begun.elapsed() < Duration::from_secs(35), "at once: {:?}", begun.elapsed());
    let ended =
        finish(site.lockwell(&["run", "--wait", "1500ms", "a", "--", "true"]).env("LOCKWELL_URL", url));
    ended.complains(69, "tried again for 1s 500ms");
    assert_eq!(messages(&ended), 1, "{ended:?}");
    let waiting = [
        start(&["run", "--wait", "60s", "a", "--", "true"]),
        start(&["run", "--wait", "60s", "--also", "b", "--also", "c", "d", "--", "true"]),
        start(&["wait", "--for", "60s", "e"]),
    ];
    let lazy = lockwell::connect_lazy(url).unwrap();
    let configured = lockwell::connect_with(lockwell::LockConfig::new(url).lazy()).await.unwrap();
    let error = lazy.lock("lazy").try_now().await.unwrap_err();
    assert_eq!(error.kind(), lockwell::ErrorKind::Unreachable, "{error:#}");
    let addr = servers[0].addr().to_string();
    assert!(error.servers().is_some_and(|named| named.contains(&addr)), "{error:#}");
    assert!(error.to_string().contains(&addr), "{error:#}");
    let claims = (
        tokio::spawn(lazy.lock("lazy").wait(Duration::from_mins(1)).into_future()),
        tokio::spawn(lazy.lock_all(["lazy 1", "lazy 2"]).wait(Duration::from_mins(1)).into_future()),
        tokio::spawn(configured.lock("configured").wait(Duration::from_mins(1)).into_future()),
    );
    tokio::time::sleep(AWAY).await;
    for server in servers {
        server.restart().await.unwrap();
    }
    for run in waiting {
        let run =
            tokio::task::spawn_blocking(move || run.finish_within(Duration::from_mins(1))).await.unwrap();
        assert_eq!((run.status, messages(&run)), (0, 1), "{run:?}");
    }
    claims.0.await.unwrap().unwrap().release().await.unwrap();
    claims.1.await.unwrap().unwrap().release().await.unwrap();
    claims.2.await.unwrap().unwrap().release().await.unwrap();
    lazy.close().await.unwrap();
}

#[test]
#[cfg(feature = "postgres")]
fn a_wait_covers_a_restart_of_postgres() {
    block_on(async {
        let Some(server) = crate::servers::postgres().await else { return };
        a_wait_covers_a_restart(&server.url(), &[&server]).await;
    });
}

#[test]
#[cfg(feature = "mysql")]
fn a_wait_covers_a_restart_of_mariadb() {
    block_on(async {
        let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
        a_wait_covers_a_restart(&server.url(), &[&server]).await;
    });
}

#[test]
#[cfg(feature = "redis")]
fn a_wait_covers_a_restart_of_redis() {
    block_on(async {
        let Some(server) = if_installed(Redis::start_with(&options()).await) else { return };
        a_wait_covers_a_restart(&server.url(), &[&server]).await;
        // A wrong password is not waited for.
        let url = server.url().replace("redis://", "redis://ann:wrong@");
        let begun = Instant::now();
        let run = finish(&mut lockwell(&["run", "--wait", "1m", "--url", &url, "a", "--", "true"]));
        run.complains(77, "");
        assert!(messages(&run) == 0 && begun.elapsed() < Duration::from_secs(10), "{run:?}");
    });
}

#[test]
#[cfg(feature = "redis")]
fn a_wait_covers_a_restart_of_the_majority() {
    block_on(async {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let Some(node) = if_installed(Redis::start_with(&options()).await) else { return };
            nodes.push(node);
        }
        let addrs: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        // Nodes that restart may have forgotten: they do not vote for as long as the longest lease.
        let url = format!("redlock://{}?longest_ttl=10s", addrs.join(","));
        a_wait_covers_a_restart(&url, &[&nodes[0], &nodes[1]]).await;
    });
}

#[test]
#[cfg(feature = "redis")]
fn a_wait_covers_a_restart_of_a_cluster() {
    block_on(async {
        let Some(cluster) = if_installed(RedisCluster::start(3, &options()).await) else { return };
        let nodes: Vec<&Server> = cluster.nodes().iter().map(|node| &**node).collect();
        a_wait_covers_a_restart(&(cluster.url() + "?durability=server"), &nodes).await;
    });
}

#[test]
#[cfg(feature = "zk")]
fn a_wait_covers_a_restart_of_zookeeper() {
    block_on(async {
        let Some(server) = if_installed(ZooKeeper::start_with(&options()).await) else { return };
        a_wait_covers_a_restart(&server.url(), &[&server]).await;
    });
}

/// The ensemble elects at the moment of the start, some times anew.
#[test]
#[cfg(feature = "zk")]
fn deep_a_wait_covers_an_election() {
    block_on(async {
        let Some(ensemble) = if_installed(ZooKeeperEnsemble::start(3, &options()).await) else { return };
        let url = ensemble.url();
        for round in 0..3 {
            let leader = ensemble.leader().await.unwrap();
            ensemble.servers()[leader].kill().unwrap();
            let runs: Vec<_> = (0..6)
                .map(|number| {
                    std::thread::sleep(Duration::from_millis(150));
                    let name = format!("{round}/{number}");
                    let args = ["run", "--wait", "40s", &name, "--", "true"];
                    Running::start(lockwell(&args).env("LOCKWELL_URL", &url))
                })
                .collect();
            for run in runs {
                let run = run.finish_within(Duration::from_secs(50));
                assert_eq!(run.status, 0, "{run:?}");
            }
            ensemble.servers()[leader].restart().await.unwrap();
            ensemble.ready().await.unwrap();
        }
    });
}

#[test]
fn a_host_name_that_does_not_exist_is_not_waited_for() {
    let begun = Instant::now();
    let url = "redis://-no-such-host.invalid";
    let run = finish(&mut lockwell(&["run", "--wait", "6s", "--url", url, "a", "--", "true"]));
    run.complains(69, "host name unknown");
    assert!(begun.elapsed() < Duration::from_secs(5), "{run:?}");
}
