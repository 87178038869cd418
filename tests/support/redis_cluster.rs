//! A Redis Cluster of three masters, by TLS.

use std::sync::Arc;

use lockwell::conformance::{Harness, Link, Need, Server};
use lockwell::{Locks, Result, async_trait};
use testbed::{Certificates, Options, Proxy, RedisCluster, Release};

use super::servers::{Cable, credentials, missing, options};
use super::targets::Started;

pub(crate) async fn start(release: &'static Release) -> Started {
    let files = Certificates::make().map_err(|error| missing(&error))?;
    // No node takes another for dead while all of them are stopped, and remembers that when they go on.
    let options = options().release(release).tls(&files).setting("cluster-node-timeout", "60000");
    let cluster = RedisCluster::start(3, &options).await.map_err(|error| missing(&error))?;
    Ok(Arc::new(Three { cluster, files, options }))
}

#[derive(Debug)]
struct Three {
    cluster: RedisCluster,
    files: Certificates,
    options: Options,
}

#[async_trait]
impl Harness for Three {
    fn offers(&self) -> Vec<Need> {
        super::redis::offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(self.cluster.url() + &credentials(&self.files)).await
    }

    fn address(&self) -> Option<String> {
        Some(self.cluster.url() + &credentials(&self.files))
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }

    /// A cluster of its own, whose nodes tell clients the addresses of proxies: nodes tell all clients the same.
    async fn link(&self) -> Option<Box<dyn Link>> {
        let cluster = RedisCluster::start(3, &self.options).await.expect("a cluster");
        let (mut proxies, mut addresses) = (Vec::new(), Vec::new());
        for node in cluster.nodes() {
            let proxy = Proxy::start(node.peer_addr()).await.expect("a proxy");
            let port = proxy.addr().port().to_string();
            let told = node.command(&["CONFIG", "SET", "cluster-announce-tls-port", &port]);
            assert_eq!(told.expect("an answer"), "+OK\r\n");
            addresses.push(proxy.addr().to_string());
            proxies.push(proxy);
        }
        let all_know = || {
            cluster.nodes().iter().all(|node| {
                let seen = node.command(&["CLUSTER", "SHARDS"]).expect("an answer");
                proxies.iter().all(|proxy| seen.contains(&format!("\r\n:{}\r\n", proxy.addr().port())))
            })
        };
        while !all_know() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let url = format!("rediss+cluster://{}{}", addresses.join(","), credentials(&self.files));
        let keep = cluster.nodes().iter().map(|node| testbed::Server::clone(node)).collect();
        Some(Box::new(Cable { proxies, url, keep }))
    }
}

#[async_trait]
impl Server for Three {
    async fn pause(&self) {
        self.cluster.nodes().iter().for_each(|node| node.pause().expect("the node runs"));
    }

    async fn resume(&self) {
        for node in self.cluster.nodes() {
            if node.pid().is_none() {
                node.restart().await.expect("the node starts again");
            }
            node.resume().expect("the node runs");
        }
        self.cluster.ready().await.expect("the nodes agree");
    }

    async fn restart(&self) {
        for node in self.cluster.nodes() {
            node.stop().await.expect("the node ends");
        }
        self.resume().await;
    }
}
