//! etcd: one member, and a cluster of three.

use std::sync::Arc;

use lockwell::conformance::OneServer;
use testbed::{Etcd, EtcdCluster, Release};

use super::majority::{Three, offers};
use super::targets::Started;

pub(crate) async fn one(release: &'static Release) -> Started {
    let etcd = Etcd::start_with(&super::servers::options().release(release)).await?;
    // An `Etcd` is a `Server`, by its address.
    let (door, server) = (etcd.addr(), testbed::Server::clone(&etcd));
    let url = move |addr| etcd.url_via(addr);
    Ok(Arc::new(OneServer::new(offers(), door, server, url, lockwell::connect)))
}

pub(crate) async fn three(release: &'static Release) -> Started {
    let cluster = EtcdCluster::start(3, &super::servers::options().release(release)).await?;
    Ok(Arc::new(Three(cluster)))
}
