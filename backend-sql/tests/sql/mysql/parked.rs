//! What a parked connection waits for on MariaDB, and what becomes of the waiter when that is lost.

use std::time::{Duration, Instant};

use testbed::MariaDb;

use super::{connect, counted, options, start};

/// The connections that wait for a name of `GET_LOCK`.
async fn blocked(server: &MariaDb) -> String {
    listed(server, "SELECT id FROM information_schema.processlist WHERE state = 'User lock'").await
}

async fn listed(server: &MariaDb, sql: &str) -> String {
    server.admin_sql(sql).await.expect("an answer").trim().to_owned()
}

/// Waits until one connection does, and it is not this one.
async fn other_than(server: &MariaDb, before: &str) -> String {
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let found = blocked(server).await;
        if !found.is_empty() && found != before {
            return found;
        }
        assert!(Instant::now() < end, "no connection waits for a name, beside {before:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sleeping connections would share a mutex, and stall the server when many are killed. When the connection
/// that has the name is lost, both are replaced, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_connection_waits_for_a_name_and_not_for_a_time() {
    let Some(server) = start("mariadb10", options("mariadb10")).await else { return };
    let (one, two) = (connect(&server, "parked").await, connect(&server, "parked").await);
    let guard = one.lock("a").await.expect("a free lock");
    let waiting = tokio::spawn(two.lock("a").wait(Duration::from_mins(1)).into_future());
    let first = other_than(&server, "").await;
    for _ in 0..30 {
        let sleeping = "SELECT id FROM information_schema.processlist WHERE state = 'User sleep'";
        assert_eq!(listed(&server, sleeping).await, "", "a connection sleeps");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // The one that has the name is idle, as are those for requests.
    let idle = "SELECT CONCAT('KILL ', id, ';') FROM information_schema.processlist WHERE command = 'Sleep'";
    let kills = listed(&server, idle).await;
    assert!(!kills.is_empty(), "a connection has the name");
    server.admin_sql(&kills).await.expect("an administrator");
    other_than(&server, &first).await;

    // Two looks at these numbers are connections as well.
    let before = counted(&server, "Connections").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let made = counted(&server, "Connections").await - before;
    assert!(made < 5, "{made} connections in three seconds");
    let released = Instant::now();
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn comes").release().await.expect("held");
    assert!(released.elapsed() < Duration::from_secs(5), "{:?}", released.elapsed());
}
