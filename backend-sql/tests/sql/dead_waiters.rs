//! Places of waiters that are gone.

use std::time::{Duration, Instant};

use crate::servers::{ALL, Kind, admin, client, count, until_count, url, wait_for, waiters};

const DEAD: u32 = 3_000;

/// Places of processes that have died, all for one lock, and one of a process that lives.
fn fill(kind: Kind) -> String {
    match kind {
        Kind::Postgres => format!(
            "INSERT INTO dead_clients SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid,
                 now() - interval '1 minute', n FROM generate_series(1, 3) AS n;
             INSERT INTO dead_clients VALUES ('00000000-0000-0000-0000-000000000009', now() + interval '1 hour', 1);
             INSERT INTO dead_waiters (name, owner, client, number, label, mode, tokens)
                 SELECT 'a', gen_random_uuid(), ('00000000-0000-0000-0000-00000000000' || n % 3 + 1)::uuid, n, 'dead', 0, 1
                 FROM generate_series(1, {DEAD}) AS n;
             INSERT INTO dead_waiters (name, owner, client, number, label, mode, tokens)
                 VALUES ('a', gen_random_uuid(), '00000000-0000-0000-0000-000000000009', 1, 'alive', 0, 1)"
        ),
        Kind::MariaDb => format!(
            "SET SESSION max_recursive_iterations = {DEAD};
             INSERT INTO dead_clients VALUES (LPAD(1, 16, 'x'), 1000, 1), (LPAD(2, 16, 'x'), 1000, 1),
                 (LPAD(0, 16, 'x'), 1000, 1), (LPAD(9, 16, 'x'), 9000000000000000, 1);
             INSERT INTO dead_waiters (name, owner, client, number, label, mode, tokens, entered_at)
                 WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {DEAD})
                 SELECT 'a', LPAD(n, 16, 'o'), LPAD(n % 3, 16, 'x'), n, 'dead', 0, 1, 0 FROM s;
             INSERT INTO dead_waiters (name, owner, client, number, label, mode, tokens, entered_at)
                 VALUES ('a', LPAD(9, 16, 'p'), LPAD(9, 16, 'x'), 1, 'alive', 0, 1, 0)"
        ),
        Kind::Sqlite => format!(
            "INSERT INTO dead_queue (name, owner, client, alive_until, label, mode, entered_at)
                 WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {DEAD})
                 SELECT 'a', randomblob(16), zeroblob(16), 1000, 'dead', 0, 0 FROM s;
             INSERT INTO dead_queue (name, owner, client, alive_until, label, mode, entered_at)
                 VALUES ('a', randomblob(16), zeroblob(16), 9000000000000000, 'alive', 0, 0)"
        ),
    }
}

/// They go within seconds while anybody waits for any lock, although nothing is ever purged. Those of the
/// living stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_go_within_seconds() {
    for kind in ALL {
        let Some(url) = url(kind, "dead").await else { continue };
        let url = url + "&purge_after=0s";
        let (holder, waiter) = (client(kind, &url).await, client(kind, &url).await);
        admin(kind, &url, &fill(kind)).await;
        let guard = holder.lock("other").await.expect("a free lock");
        let waiting = tokio::spawn(waiter.lock("other").wait(Duration::from_mins(2)).into_future());
        let dead = format!("{} WHERE label = 'dead'", waiters(kind, "dead"));
        assert_eq!(count(kind, &url, &dead).await, DEAD.to_string(), "{kind:?}");
        let began = Instant::now();
        until_count(kind, &url, &dead, 0, Duration::from_secs(30)).await;
        println!("{kind:?}: {DEAD} places were gone after {:?}", began.elapsed());
        let alive = format!("{} WHERE label = 'alive'", waiters(kind, "dead"));
        assert_eq!(count(kind, &url, &alive).await, "1", "{kind:?}: the living wait");
        if kind != Kind::Sqlite {
            // The client of the waiter, and the one that the test plays.
            until_count(kind, &url, "dead_clients", 2, Duration::from_secs(10)).await;
        }
        guard.release().await.expect("held");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
}

/// The tables have such places after a backup was restored: their clients live, and have other waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_its_client_does_not_know_goes() {
    for kind in [Kind::Postgres, Kind::MariaDb] {
        it_goes_within(kind, "stale", Duration::from_secs(30), kind == Kind::Postgres).await;
    }
}

/// A copy of a claim that arrives when nobody knows it any more makes such a place, and ends no session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_of_a_late_copy_goes() {
    it_goes_within(Kind::Postgres, "late_copy", Duration::from_mins(1), false).await;
}

/// A client waits for a lock, and has a place for another one that it does not know.
async fn it_goes_within(kind: Kind, table: &str, within: Duration, sessions_end: bool) {
    let Some(url) = url(kind, table).await else { return };
    let (holder, waiter) = (client(kind, &url).await, client(kind, &url).await);
    holder.lock("a").await.expect("a free lock").release().await.expect("held");
    let guard = holder.lock("other").await.expect("a free lock");
    waiter.lock("other").wait(Duration::from_millis(300)).await.expect_err("it is held");
    let waiting = tokio::spawn(waiter.lock("other").wait(Duration::from_mins(2)).into_future());
    wait_for(&holder, "other", 1).await;
    // The number of the place that is gone.
    let (waits, owner, more, entered) = match kind {
        Kind::Postgres => ("true", "gen_random_uuid()", "", ""),
        _ => ("1", "LPAD(1, 16, 'o')", ", entered_at", ", 0"),
    };
    let fill = format!(
        "INSERT INTO {table}_waiters (name, owner, client, number, label, mode, tokens{more})
             SELECT 'a', {owner}, client, 1, 'stale', 0, 1{entered} FROM {table}_waiters;
         UPDATE {table} SET waited = {waits} WHERE name = 'a'"
    );
    admin(kind, &url, &fill).await;
    let stale = format!("{} WHERE label = 'stale'", waiters(kind, table));
    assert_eq!(count(kind, &url, &stale).await, "1", "{kind:?}");
    if sessions_end {
        // Such a server has been started again, which ends the sessions of all clients.
        let end = format!(
            "SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a
                 JOIN (SELECT DISTINCT client FROM {table}_waiters) w
                 ON a.query LIKE 'LISTEN %' || replace(w.client::text, '-', '') || '%'"
        );
        assert_eq!(admin(kind, &url, &end).await.trim(), "1");
    }
    let next = holder.lock("a").wait(within).await.expect("a free lock");
    assert_eq!(count(kind, &url, &stale).await, "0", "{kind:?}");
    next.release().await.expect("held");
    guard.release().await.expect("held");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
}
