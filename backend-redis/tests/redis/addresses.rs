//! Host names with several addresses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockwell_core::suite::set_lookup;
use testbed::{Direction, Proxy, addresses_of, hung};

use crate::servers::{client, redis};

pub(crate) fn name_of(addresses: &[SocketAddr]) -> String {
    set_lookup(addresses_of);
    testbed::name_of(addresses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_first_address_is_passed_over() {
    let Some(server) = redis().await else { return };
    let (_listener, first) = hung();
    let begun = Instant::now();
    let locks = client(&format!("redis://{}", name_of(&[first, server.addr()]))).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
    println!("{:?}", begun.elapsed());
}

/// Each proxy is one of two that lead to the server. The first one hangs while a lock is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_address_takes_over_from_one_that_hangs() {
    let Some(server) = redis().await else { return };
    let first = Proxy::start(server.addr()).await.expect("a proxy");
    let second = Proxy::start(server.addr()).await.expect("a proxy");
    let locks = client(&format!("redis://{}", name_of(&[first.addr(), second.addr()]))).await;
    let ttl = Duration::from_secs(15);
    let kept = locks.lock("kept").ttl(ttl).await.expect("a free lock");
    for (hangs, other) in [(&first, &second), (&second, &first)] {
        hangs.blackhole(Direction::Both);
        tokio::time::sleep(ttl + Duration::from_secs(1)).await;
        assert!(kept.is_held(), "{:?}", kept.lease_state());
        locks.lock("another").await.expect("a free lock").release().await.expect("held");
        hangs.heal();
        assert!(other.accepted() > 0, "the other one was asked");
    }
    kept.release().await.expect("held");
}
