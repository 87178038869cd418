//! Host names with several addresses.

use std::net::SocketAddr;
use std::time::Instant;

use lockwell_core::suite::set_lookup;
use testbed::{ZooKeeperEnsemble, addresses_of, hung, if_installed, name_of};

use crate::servers::{client, hold, lasting, options, secs, single};

fn url(addresses: &[SocketAddr]) -> String {
    set_lookup(addresses_of);
    format!("zk://{}", name_of(addresses))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_first_address_is_passed_over() {
    let Some(server) = single(&options()).await else { return };
    let (_listener, first) = hung();
    let begun = Instant::now();
    let locks = client(&url(&[first, server.addr()])).await;
    hold(&locks, "a").await.release().await.expect("held");
    println!("{:?}", begun.elapsed());
}

/// All members of an ensemble have one name, as those of a headless service have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_a_member_that_hangs_behind_a_name_is_left() {
    let options = options().setting("syncLimit", "10").setting("initLimit", "15");
    let Some(servers) = if_installed(ZooKeeperEnsemble::start(3, &options).await) else { return };
    let locks = lasting(&url(&servers.addresses())).await;
    let kept = locks.lock("kept").ttl(secs(20)).await.expect("a free lock");
    // Each in turn, and so the one that the session uses.
    for server in servers.servers() {
        server.pause().expect("it runs");
        tokio::time::sleep(secs(21)).await;
        assert!(kept.is_held(), "{:?}", kept.lease_state());
        let next = locks.lock("another").ttl(secs(20)).wait(secs(20)).await.expect("an answer");
        next.release().await.expect("held");
        server.resume().expect("it is stopped");
        servers.ready().await.expect("an ensemble");
    }
    kept.release().await.expect("held");
}
