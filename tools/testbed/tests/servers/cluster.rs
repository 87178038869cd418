//! A Redis Cluster.

use testbed::{RedisCluster, if_installed};

use crate::{
    life::{assert_gone, eventually, traces},
    options, say,
};

#[tokio::test]
async fn redis_cluster_lives() {
    let Some(cluster) = if_installed(RedisCluster::start(3, &options()).await) else { return };
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    let (a, b, c) = (first.addr(), second.addr(), third.addr());
    assert_eq!(cluster.url(), format!("redis+cluster://{a},{b},{c}"));
    // The slots of these keys: 3300, 7365 and 11298.
    for (key, at) in [("b", first), ("c", second), ("d", third)] {
        assert_eq!(say(at, &["SET", key, "1"]), "+OK\r\n");
    }
    assert_eq!(say(first, &["SET", "c", "1"]), format!("-MOVED 7365 {b}\r\n"));
}

#[tokio::test]
async fn a_cluster_node_comes_back() {
    let Some(cluster) =
        if_installed(RedisCluster::start(3, &options().setting("requirepass", "secret")).await)
    else {
        return;
    };
    let [first, second, third] = cluster.nodes() else { panic!("three nodes") };
    assert_eq!(say(second, &["CLUSTER", "KEYSLOT", "d"]), ":11298\r\n");
    assert_eq!(say(third, &["SET", "d", "kept"]), "+OK\r\n");
    third.kill().expect("kills");
    eventually("the others notice", async || say(first, &["GET", "b"]).starts_with("-CLUSTERDOWN")).await;
    third.restart().await.expect("restarts");
    cluster.ready().await.expect("they agree again");
    assert_eq!(say(third, &["GET", "d"]), "$4\r\nkept\r\n");
    assert_eq!(say(first, &["GET", "b"]), "$-1\r\n");

    let traces: Vec<_> = cluster.nodes().iter().map(|node| traces(node)).collect();
    let clone = cluster.clone();
    drop(cluster);
    clone.ready().await.expect("still there");
    drop(clone);
    for (pid, folder) in traces {
        assert_gone(pid, &folder);
    }
}

#[tokio::test]
async fn a_cluster_of_one_lives() {
    let Some(cluster) = if_installed(RedisCluster::start(1, &options()).await) else { return };
    assert_eq!(say(&cluster.nodes()[0], &["SET", "d", "1"]), "+OK\r\n");
    assert!(RedisCluster::start(0, &options()).await.is_err());
}
