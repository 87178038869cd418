//! Waiters on PostgreSQL are woken soon, whatever lies between them and the server.
//!
//! A waiter that nobody wakes looks again 1.3 s after its last look, so a hand-over that takes far less was announced.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use lockcore::Locks;
use testbed::{Direction, Durability, Options, PgBouncer, Proxy, Release};

use crate::servers::{Kind, client, missing, postgres};

/// Far less than the time after which a waiter looks by itself.
const SOON: Duration = Duration::from_millis(600);

/// How long the lock goes from a holder to a waiter whose first looks are over.
async fn hand_over(holder: &Locks, waiter: &Locks) -> Duration {
    let guard = holder.lock("a").wait(Duration::from_secs(30)).await.expect("a free lock");
    let waiting = tokio::spawn(waiter.lock("a").wait(Duration::from_secs(30)).into_future());
    while holder.inspect("a").await.expect("an answer").waiters == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(350)).await;
    let released = Instant::now();
    guard.release().await.expect("held");
    let next = waiting.await.expect("no panic").expect("its turn");
    let took = released.elapsed();
    next.release().await.expect("held");
    took
}

/// The shortest of some hand-overs: a machine may be busy, but not a waiter that is woken late each time.
async fn shortest(holder: &Locks, waiter: &Locks) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..4 {
        shortest = shortest.min(hand_over(holder, waiter).await);
        if shortest < SOON {
            break;
        }
    }
    shortest
}

/// A pooler in transaction mode accepts a subscription, and nothing arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_that_carries_no_notifications() {
    let Some(server) = postgres().await else { return };
    let direct = client(Kind::Postgres, &(server.url() + "?table=unheard")).await;
    for release in ["pgbouncer1.18", "pgbouncer1.26"] {
        let options = Options::new().durability(Durability::OsCache).release(Release::named(release));
        let pooler = match PgBouncer::start_with(server, &options).await {
            Err(error) if error.is_not_installed() && Release::named(release).is_newer() => {
                eprintln!("not tested: {error}");
                continue;
            }
            Err(error) if error.is_not_installed() => {
                missing(Err(error));
                continue;
            }
            pooler => pooler.expect("the pooler starts"),
        };
        let url = pooler.url() + "?table=unheard";
        let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
        for (holder, waiter) in [(&one, &two), (&direct, &one), (&one, &direct)] {
            let took = shortest(holder, waiter).await;
            println!("{release}: {took:?}");
            assert!(took < SOON, "{release}: {took:?}");
        }
    }
}

/// The network forgets the connections that were open, one way or both, without a word to either end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_connection_that_is_silent_by_now() {
    let Some(server) = postgres().await else { return };
    let holder = client(Kind::Postgres, &(server.url() + "?table=silent")).await;
    for direction in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let proxy = Proxy::start(server.addr()).await.expect("a proxy");
        let waiter =
            client(Kind::Postgres, &(server.url_via(proxy.addr()) + "?table=silent&timeout=4s")).await;
        shortest(&holder, &waiter).await;
        proxy.hold_back_only(direction);
        // Requests have found a new connection by then, and so have notifications.
        tokio::time::sleep(Duration::from_secs(6)).await;
        hand_over(&holder, &waiter).await;
        let took = shortest(&holder, &waiter).await;
        println!("{direction:?}: {took:?}");
        assert!(took < SOON, "{direction:?}: {took:?}");
    }
}

/// The first connection for notifications never comes to be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_connection_that_hung_while_it_was_made() {
    let Some(server) = postgres().await else { return };
    let holder = client(Kind::Postgres, &(server.url() + "?table=hung")).await;
    let proxy = Proxy::start(server.addr()).await.expect("a proxy");
    let waiter = client(Kind::Postgres, &(server.url_via(proxy.addr()) + "?table=hung&timeout=2s")).await;
    // The kernel takes the connection, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.redirect(silent.local_addr().expect("an address"));
    hand_over(&holder, &waiter).await;
    proxy.redirect(server.addr());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let took = shortest(&holder, &waiter).await;
    println!("{took:?}");
    assert!(took < SOON, "{took:?}");
}
