//! What is checked when a client connects to a cluster.

use std::time::Duration;

use futures_util::future::join_all;
use lockwell_core::{ErrorKind, Severity};
use testbed::{RedisCluster, if_installed};

use crate::cluster::{cluster, names};
use crate::logs;
use crate::servers::{client, in_memory, on_disk, refusal, tell};

/// Every master is looked at, whichever is asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_is_checked() {
    logs::keep();
    let Some(cluster) = if_installed(RedisCluster::start(3, &on_disk()).await) else { return };
    let strict = format!("{}?strict=true", cluster.url());
    client(&strict).await.lock("a").await.expect("a free lock").release().await.expect("held");
    let port = |node: usize| cluster.nodes()[node].addr().port().to_string();
    assert!((0..3).all(|node| !logs::has("WARN", &["may lose locks", &port(node)])));
    for (node, master) in cluster.nodes().iter().enumerate() {
        tell(master, &["CONFIG", "SET", "appendfsync", "everysec"]);
        let error = refusal(&strict).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains("before its change is on the disk"), "{error:#}");
        client(&cluster.url()).await;
        assert!(logs::has("WARN", &["may lose locks", &port(node)]), "{:#?}", logs::lines());
        tell(master, &["CONFIG", "SET", "appendfsync", "always"]);
    }
    client(&strict).await;
}

/// A client that is there already refuses a master as well, as soon as it has to connect to it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_connection_is_checked() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &on_disk()).await) else { return };
    let locks = client(&format!("{}?strict=true", cluster.url())).await;
    let names = names(&cluster, "strict");
    tell(&cluster.nodes()[1], &["CONFIG", "SET", "appendfsync", "no"]);
    tell(&cluster.nodes()[1], &["CLIENT", "KILL", "TYPE", "normal"]);
    let error = locks.lock(&*names[1]).await.expect_err("it may lose locks");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    locks.lock(&*names[0]).await.expect("a free lock").release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_and_replicas_that_confirm_go_together() {
    let Some(cluster) = if_installed(RedisCluster::start_with_replicas(3, &on_disk()).await) else { return };
    let error = refusal(&format!("{}?strict=true", cluster.url())).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("wait_replicas"), "{error:#}");
    let locks = client(&format!("{}?strict=true&wait_replicas=1", cluster.url())).await;
    for name in names(&cluster, "both") {
        locks.lock(&*name).await.expect("confirmed").release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brace_in_the_namespace_is_closed_or_refused() {
    let Some(cluster) = cluster().await else { return };
    for namespace in ["%7Bx:", "%7B%7D:"] {
        let error = refusal(&format!("{}?namespace={namespace}", cluster.url())).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains("brace"), "{error:#}");
    }
    let locks = client(&format!("{}?namespace=%7Bx%7D:", cluster.url())).await;
    for name in ["a", "a}b", "{y}", "{"] {
        locks.read(name).await.expect("a free lock").release().await.expect("held");
        locks.lock(name).await.expect("a free lock").release().await.expect("held");
    }
}

/// The rights that docs/redis.md lists are enough, and a missing one is an error on connecting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_and_asking_is_one() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    for (user, more) in [("app", vec!["+cluster|slots", "+asking"]), ("less", vec!["+cluster|slots"])] {
        for node in cluster.nodes() {
            let mut command = vec!["ACL", "SETUSER", user, "on", ">canary-secret-123"];
            command.extend(include_str!("minimal.acl").split_whitespace());
            command.extend(&more);
            tell(node, &command);
        }
    }
    let url = |user: &str| cluster.url().replace("://", &format!("://{user}:canary-secret-123@"));
    let locks = client(&url("app")).await;
    for name in names(&cluster, "allowed") {
        locks.lock(&*name).await.expect("a free lock").release().await.expect("held");
        locks.permit(&*name, 2).await.expect("a permit").release().await.expect("held");
    }
    let error = refusal(&url("less")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
    assert!(error.to_string().contains("ASKING"), "{error:#}");
}

/// Each runtime has one connection to each master that it uses: here that of the test, and the keeper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_two_connections_to_each_master() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &in_memory()).await) else { return };
    let (locks, ttl) = (client(&cluster.url()).await, Duration::from_secs(4));
    let guards = join_all((0..60).map(|n| locks.lock(format!("{n}")).ttl(ttl).into_future())).await;
    let waiting: Vec<_> = (0..60).map(|n| tokio::spawn(locks.lock(format!("{n}")).into_future())).collect();
    tokio::time::sleep(3 * ttl).await;
    for node in cluster.nodes() {
        let list = tell(node, &["CLIENT", "LIST"]);
        // One more asks for the list.
        let connections = list.lines().filter(|line| line.starts_with("id=")).count() - 1;
        assert_eq!(connections, 2, "{list}");
    }
    for guard in guards {
        guard.expect("a free lock").release().await.expect("held");
    }
    for waiting in waiting {
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// Of a cluster in which a node is down, an operator learns which one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_down_is_named() {
    let options = on_disk().setting("cluster-require-full-coverage", "no");
    let Some(cluster) = if_installed(RedisCluster::start(3, &options).await) else { return };
    let locks = client(&format!("{}?timeout=2s", cluster.url())).await;
    let dead = &cluster.nodes()[1];
    dead.kill().expect("it runs");
    let findings = locks.backend().examine().await.expect("the others answer");
    let bad: Vec<_> = findings.iter().filter(|one| one.severity == Severity::Bad).collect();
    assert!(
        matches!(bad[..], [one] if one.message.contains(&dead.addr().port().to_string())),
        "{findings:?}"
    );
}
