//! Places in the queue.

use std::time::Duration;

use sqlx::Connection;

use crate::servers::{ALL, Kind, client, count, session, url, wait_for, waiters};

#[tokio::test]
async fn a_waiter_that_got_its_lock_gives_its_place_up() {
    for kind in ALL {
        let Some(url) = url(kind, "places").await else { continue };
        let (one, two) = (client(kind, &url).await, client(kind, &url).await);
        for _ in 0..5 {
            let guard = one.lock("a").await.expect("a free lock");
            let waiting = tokio::spawn(two.lock("a").into_future());
            while count(kind, &url, &waiters(kind, "places")).await == "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            guard.release().await.expect("held");
            let guard = waiting.await.expect("no panic").expect("its turn comes");
            // The release does it, on SQLite another statement at once. On MySQL its row stays as the message
            // to it.
            let places = match kind {
                Kind::MariaDb => waiters(kind, "places") + " WHERE granted IS NULL",
                _ => waiters(kind, "places"),
            };
            for _ in 0..400 {
                if kind != Kind::Sqlite || count(kind, &url, &places).await == "0" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(count(kind, &url, &places).await, "0", "{kind:?}");
            guard.release().await.expect("held");
            assert_eq!(count(kind, &url, &waiters(kind, "places")).await, "0", "{kind:?}");
        }
    }
}

/// An administrator may lock the table of the clients for longer than our sessions wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_outlives_a_locked_table() {
    let Some(url) = url(Kind::Postgres, "locked").await else { return };
    let (one, two) = (client(Kind::Postgres, &url).await, client(Kind::Postgres, &url).await);
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_mins(1)).into_future());
    wait_for(&one, "a", 1).await;
    let mut session = session(&url).await;
    let mut others = session.begin().await.expect("a transaction");
    let lock = "LOCK TABLE locked_clients IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *others).await.expect("locked");
    // The time between two heartbeats, and that for which a statement waits for the table, twice.
    tokio::time::sleep(Duration::from_secs(5)).await;
    others.commit().await.expect("unlocked");
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}
