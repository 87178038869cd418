//! Groups of Redis that talk TLS among themselves.

use testbed::{Certificates, Options, Proxy, Redis, RedisCluster, RedisSentinel, if_installed, is_installed};

fn options() -> Option<(Certificates, Options)> {
    if !is_installed(Redis::installed()) {
        return None;
    }
    let files = if_installed(Certificates::make())?;
    let options = Options::new().tls(&files);
    Some((files, options))
}

#[tokio::test]
async fn sentinels_name_the_tls_port() {
    let Some((_files, options)) = options() else { return };
    let group = RedisSentinel::start_with(&options).await.expect("a group");
    let master = group.master();
    assert_ne!(master.peer_addr(), master.addr());
    assert_eq!(group.present_master().await.expect("a master"), master.peer_addr());
    assert!(group.url().starts_with("rediss+sentinel://"), "{}", group.url());
    let proxy = Proxy::start(master.peer_addr()).await.expect("a proxy");
    let (guide, name) = group.start_guide(proxy.addr()).await.expect("one more sentinel");
    let told = guide.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &name]).expect("an answer");
    assert!(told.contains(&proxy.addr().port().to_string()), "{told}");
    assert_eq!(
        group.present_master().await.expect("a master"),
        master.peer_addr(),
        "the others know nothing of it"
    );
}

#[tokio::test]
async fn nodes_of_a_cluster_talk_tls() {
    let Some((_files, options)) = options() else { return };
    let cluster = RedisCluster::start(3, &options).await.expect("a cluster");
    assert!(cluster.url().starts_with("rediss+cluster://"), "{}", cluster.url());
    for node in cluster.nodes() {
        let set = node.command(&["CONFIG", "GET", "tls-cluster"]).expect("an answer");
        assert!(set.contains("yes"), "{set}");
    }
}
