//! Waiters on PostgreSQL are woken soon, whatever lies between them and the server.
//!
//! A waiter that nobody wakes looks again 1.3 s after its last look, so a hand-over that takes far less was
//! announced.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use lockwell_core::Locks;
use testbed::{Direction, Durability, Options, PgBouncer, Proxy, Release, if_fetched, if_installed};

use crate::servers::{Kind, client, postgres, wait_for};

/// Far less than the time after which a waiter looks by itself.
const SOON: Duration = Duration::from_millis(600);

/// How long the lock goes from a holder to a waiter whose first looks are over.
async fn hand_over(holder: &Locks, waiter: &Locks) -> Duration {
    let guard = holder.lock("a").wait(Duration::from_secs(30)).await.expect("a free lock");
    let waiting = tokio::spawn(waiter.lock("a").wait(Duration::from_secs(30)).into_future());
    wait_for(holder, "a", 1).await;
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
        let started = PgBouncer::start_with(server, &options).await;
        let is_fetched = Release::named(release).is_fetched();
        let pooler = if is_fetched { if_fetched(started) } else { if_installed(started) };
        let Some(pooler) = pooler else { continue };
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

/// Who cannot subscribe waits for that once, and not before each request: others would come before it in the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_without_a_subscription_enters_the_queue() {
    let Some(server) = postgres().await else { return };
    let url = server.url() + "?table=narrow";
    let holder = client(Kind::Postgres, &url).await;
    let rights = "CREATE ROLE narrow LOGIN; GRANT USAGE ON SCHEMA public TO narrow;
        GRANT SELECT, INSERT, UPDATE, DELETE ON narrow, narrow_waiters, narrow_clients, narrow_members, narrow_state, narrow_mark TO narrow";
    server.admin_sql(rights).await.expect("an administrator");
    let locks = client(Kind::Postgres, &(url.replace("postgres@", "narrow@") + "&create=false")).await;
    locks.lock("open").await.expect("a free lock").release().await.expect("held");
    // The connections that it has stay. There are no more.
    server.admin_sql("ALTER ROLE narrow CONNECTION LIMIT 1").await.expect("an administrator");
    let held = [holder.lock("a").await.expect("a free lock"), holder.lock("b").await.expect("a free lock")];
    let first = tokio::spawn(locks.lock("a").wait(Duration::from_mins(1)).into_future());
    wait_for(&holder, "a", 1).await;
    // It has been tried in vain for a while by now.
    let second = tokio::spawn(locks.lock("b").wait(Duration::from_millis(1500)).into_future());
    while holder.inspect("b").await.expect("an answer").waiters == 0 {
        assert!(!second.is_finished(), "it has not entered the queue");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for guard in held {
        guard.release().await.expect("held");
    }
    first.await.expect("no panic").expect("its turn").release().await.expect("held");
    // It may have come too late for this one.
    if let Ok(guard) = second.await.expect("no panic") {
        guard.release().await.expect("held");
    }
}
