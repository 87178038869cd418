//! etcd: one member, and a cluster of three.

use std::sync::Arc;

use lockwell::conformance::OneServer;
use testbed::{Etcd, EtcdCluster, Release};

use super::group::Group;
use super::servers::{offers_of_majority, offers_of_three};
use super::targets::Started;

pub(crate) async fn one(release: &'static Release) -> Started {
    let etcd = Etcd::start_with(&super::servers::options().release(release)).await?;
    // An `Etcd` is a `Server`, by its address.
    let (door, server) = (etcd.addr(), testbed::Server::clone(&etcd));
    let url = move |addr| etcd.url_via(addr);
    Ok(Arc::new(OneServer::new(offers_of_majority(), door, server, url, lockwell::connect)))
}

pub(crate) async fn three(release: &'static Release) -> Started {
    let cluster = EtcdCluster::start(3, &super::servers::options().release(release)).await?;
    let servers = cluster.members().iter().map(|member| testbed::Server::clone(member)).collect();
    let (ready, leader) = (cluster.clone(), cluster.clone());
    let group =
        Group::new(offers_of_three(), servers, cluster.addresses(), move |addrs| cluster.url_via(addrs))
            .ready(move || {
                let cluster = ready.clone();
                Box::pin(async move { cluster.ready().await })
            })
            .led_by(move || {
                let cluster = leader.clone();
                Box::pin(async move { cluster.leader().await })
            });
    Ok(Arc::new(group))
}
