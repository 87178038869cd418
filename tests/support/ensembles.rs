//! `ZooKeeper`: one server, and an ensemble of three.

use std::sync::Arc;

use lockwell::conformance::OneServer;
use testbed::{Options, Release, ZooKeeper, ZooKeeperEnsemble};

use super::group::Group;
use super::servers::{offers_of_majority, offers_of_three};
use super::targets::Started;

/// The suite works with leases from a second to a minute, and measures how soon they end: so a short tick,
/// which is the grain of the server's time, and no upper bound in the way.
fn options() -> Options {
    super::servers::options().setting("tickTime", "200").setting("maxSessionTimeout", "90000")
}

pub(crate) async fn one(release: &'static Release) -> Started {
    let zookeeper = ZooKeeper::start_with(&options().release(release)).await?;
    // A `ZooKeeper` is a `Server`, by its address.
    let (door, server) = (zookeeper.addr(), testbed::Server::clone(&zookeeper));
    let url = move |addr| zookeeper.url_via(addr);
    Ok(Arc::new(OneServer::new(offers_of_majority(), door, server, url, lockwell::connect)))
}

/// Three servers. They may be silent to each other for a while, since the machine may be busy. A session that
/// another server has taken over counts as the shortest until the servers are asked, and three Java machines
/// that have just been started together on two cores answer late.
pub(crate) async fn three(release: &'static Release) -> Started {
    let options = options().release(release).setting("syncLimit", "10").setting("initLimit", "50");
    let options = options.setting("minSessionTimeout", "2000");
    let ensemble = ZooKeeperEnsemble::start(3, &options).await?;
    let servers = ensemble.servers().iter().map(|server| testbed::Server::clone(server)).collect();
    let (ready, leader) = (ensemble.clone(), ensemble.clone());
    let group =
        Group::new(offers_of_three(), servers, ensemble.addresses(), move |addrs| ensemble.url_via(addrs))
            .ready(move || {
                let ensemble = ready.clone();
                Box::pin(async move { ensemble.ready().await })
            })
            .led_by(move || {
                let ensemble = leader.clone();
                Box::pin(async move { ensemble.leader().await })
            });
    Ok(Arc::new(group))
}
