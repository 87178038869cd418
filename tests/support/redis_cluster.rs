//! A Redis Cluster of three masters, by TLS.

use std::sync::Arc;

use lockwell::backend::async_trait;
use lockwell::conformance::{Harness, Line, Link, Need, Server};
use lockwell::{Locks, Result};
use testbed::{Certificates, Options, Proxy, RedisCluster, Release};

use super::group::Group;
use super::servers::{KEEPS, credentials, options};
use super::targets::Started;

pub(crate) async fn start(release: &'static Release) -> Started {
    // No node takes another for dead while all of them are stopped, and remembers that when they go on.
    three(release, options().setting("cluster-node-timeout", "60000"), false).await
}

/// One for a case with a link. Nodes tell all clients with TLS the same addresses: those of the link's
/// proxies. So the others come without TLS.
pub(crate) async fn start_linked(release: &'static Release) -> Started {
    three(release, options(), true).await
}

async fn three(release: &'static Release, options: Options, linked: bool) -> Started {
    let files = Certificates::make()?;
    let options = options.release(release).tls(&files);
    let cluster = RedisCluster::start(3, &options).await?;
    let servers = cluster.nodes().iter().map(|node| testbed::Server::clone(node)).collect();
    let ready = cluster.clone();
    let group = Group::new(super::redis::offers(), servers, Vec::new(), |_| String::new()).ready(move || {
        let cluster = ready.clone();
        Box::pin(async move { cluster.ready().await })
    });
    Ok(Arc::new(Three { cluster, group, files, linked }))
}

#[derive(Debug)]
struct Three {
    cluster: RedisCluster,
    /// Its nodes, to be stopped and started.
    group: Group,
    files: Certificates,
    linked: bool,
}

impl Three {
    fn url(&self) -> String {
        if self.linked {
            let nodes: Vec<_> = self.cluster.nodes().iter().map(|node| node.addr().to_string()).collect();
            return format!("redis+cluster://{}?{KEEPS}", nodes.join(","));
        }
        format!("{}{}&{KEEPS}", self.cluster.url(), credentials(&self.files))
    }

    async fn announce(&self, proxies: &[Proxy]) {
        let nodes = self.cluster.nodes();
        for (node, proxy) in nodes.iter().zip(proxies) {
            let port = proxy.addr().port().to_string();
            // A node that announces one of the two announces both.
            let plain = node.addr().port().to_string();
            for (setting, port) in [("cluster-announce-port", &plain), ("cluster-announce-tls-port", &port)] {
                let told = node.command(&["CONFIG", "SET", setting, port]);
                assert_eq!(told.expect("an answer"), "+OK\r\n");
            }
        }
        let all_know = || {
            nodes.iter().all(|node| {
                let seen = node.command(&["CLUSTER", "SHARDS"]).expect("an answer");
                proxies.iter().all(|proxy| seen.contains(&format!("\r\n:{}\r\n", proxy.addr().port())))
            })
        };
        while !all_know() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

#[async_trait]
impl Harness for Three {
    fn offers(&self) -> Vec<Need> {
        super::redis::offers()
    }

    async fn client(&self) -> Result<Locks> {
        lockwell::connect(self.url()).await
    }

    fn address(&self) -> Option<String> {
        Some(self.url())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.group)
    }

    /// If no other test uses the nodes, they announce the addresses of these proxies to clients with TLS from
    /// now on.
    async fn link(&self) -> Option<Box<dyn Link>> {
        let (mut proxies, mut addresses) = (Vec::new(), Vec::new());
        for node in self.cluster.nodes() {
            let proxy = Proxy::start(node.peer_addr()).await.expect("a proxy");
            addresses.push(proxy.addr().to_string());
            proxies.push(proxy);
        }
        if self.linked {
            self.announce(&proxies).await;
        }
        let url = format!("rediss+cluster://{}{}&{KEEPS}", addresses.join(","), credentials(&self.files));
        Some(Box::new(Line::new(proxies, url, lockwell::connect)))
    }
}
