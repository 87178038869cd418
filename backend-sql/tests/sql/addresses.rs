//! Host names with several addresses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockwell_core::ErrorKind;
use lockwell_core::suite::set_lookup;
use testbed::{Direction, addresses_of, hung, name_of};

use crate::servers::{Kind, backend, client, proxy, url, wait_for};

/// The address of the same database by a name with these addresses.
pub(crate) fn by_name(url: &str, addresses: &[SocketAddr]) -> String {
    set_lookup(addresses_of);
    let (scheme, rest) = url.split_once("://").expect("an address");
    let (before, path) = rest.split_once('/').expect("a database");
    let user = before.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{}/{path}", name_of(addresses))
}

async fn passes_over(kind: Kind) {
    let (Some(url), Some(proxy)) = (url(kind, "several").await, proxy(kind).await) else { return };
    let (_listener, first) = hung();
    let begun = Instant::now();
    let url = by_name(&url, &[first, proxy.addr()]);
    let locks = client(kind, &url).await;
    let guard = locks.lock("a").await.expect("a free lock");
    println!("{kind:?}: {:?}", begun.elapsed());
    guard.release().await.expect("held");
    // What an address answers is an answer.
    let stranger = url.replace("postgres@", "nobody@").replace("root@", "nobody@");
    let error = backend(kind, &stranger).await.expect_err("no such user");
    assert_eq!(error.kind(), ErrorKind::Refused, "{kind:?}: {error:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_first_address_of_postgres_is_passed_over() {
    passes_over(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_first_address_of_mariadb_is_passed_over() {
    passes_over(Kind::MariaDb).await;
}

/// Each proxy is one of two that lead to the database. The first one hangs while a lock is held and another
/// one is waited for.
async fn takes_over(kind: Kind) {
    let (Some(url), Some(first), Some(second)) =
        (url(kind, "takes_over").await, proxy(kind).await, proxy(kind).await)
    else {
        return;
    };
    let locks = client(kind, &by_name(&url, &[first.addr(), second.addr()])).await;
    let others = client(kind, &url).await;
    let ttl = Duration::from_secs(15);
    let kept = locks.lock("kept").ttl(ttl).await.expect("a free lock");
    let busy = others.lock("busy").ttl(ttl).await.expect("a free lock");
    let waiter = locks.clone();
    let waiting = tokio::spawn(async move {
        let end = Instant::now() + Duration::from_mins(1);
        // On a busy machine a request that met the silence may find no time for another one.
        loop {
            match waiter.lock("busy").ttl(ttl).await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error:#}"),
            }
        }
    });
    wait_for(&others, "busy", 1).await;
    first.blackhole(Direction::Both);
    tokio::time::sleep(ttl + Duration::from_secs(1)).await;
    assert!(kept.is_held(), "{kind:?}: {:?}", kept.lease_state());
    busy.release().await.expect("held");
    let next = waiting.await.expect("its turn comes");
    next.release().await.expect("held");
    kept.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_address_of_postgres_takes_over() {
    takes_over(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_address_of_mariadb_takes_over() {
    takes_over(Kind::MariaDb).await;
}
