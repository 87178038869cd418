//! The row of the state of PostgreSQL tables: it is missing, others have locked it, or an administrator restricts it.

use std::time::Duration;

use lockwell_core::{ErrorKind, Mode};
use lockwell_sql::PostgresLock;

use crate::grace::{LONGEST, forgetful, is_closed, is_granted_later};
use crate::lazy_since::both;
use crate::servers::{Kind, backend, claim, client, session};

/// The address leads to another server, whose tables come from a dump and have files of the same names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_new_connection_looks_at_the_mark() {
    let Some((server, durable, lazy)) = both("led").await else { return };
    let old = client(Kind::Postgres, &durable).await;
    old.lock("a").await.expect("a free lock").release().await.expect("held");
    is_granted_later(&client(Kind::Postgres, &lazy).await, "first").await;
    let other = "UPDATE led_mark SET server = server + 1;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL";
    server.admin_sql(other).await.expect("an administrator");
    is_closed(&old, "b").await;
}

/// All tables were emptied, or were made by a dump without rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_missing_is_made_again_where_there_are_no_locks() {
    let Some((server, durable, lazy)) = both("emptied").await else { return };
    for url in [&durable, &lazy] {
        let locks = client(Kind::Postgres, url).await;
        for again in [false, true] {
            server
                .admin_sql("TRUNCATE emptied, emptied_members, emptied_state, emptied_mark")
                .await
                .expect("emptied");
            let new = client(Kind::Postgres, &format!("{url}&create=false")).await;
            let locks = if again { &new } else { &locks };
            locks.lock("a").try_now().await.expect("no period").expect("free").release().await.expect("held");
        }
        server.admin_sql("TRUNCATE emptied_state").await.expect("emptied");
        let errors = [
            locks.lock("b").try_now().await.expect_err("there are locks"),
            backend(Kind::Postgres, url).await.map(drop).expect_err("there are locks"),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            assert!(error.to_string().contains("TRUNCATE all"), "{error:#}");
        }
        server.admin_sql("TRUNCATE emptied").await.expect("emptied");
        is_granted_later(&locks, "b").await;
    }
}

/// Others change the row, and their disk is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_depend_on_a_row_that_is_locked() {
    let Some((server, lazy)) = forgetful("busy").await else { return };
    let mut other = session(&lazy).await;
    let lock_row = "BEGIN; SELECT FROM busy_state FOR UPDATE";
    let durable = format!("{}?table=busy", server.url());
    for (n, url) in [&durable, &lazy, &format!("{durable}&pooled=true")].into_iter().enumerate() {
        let (one, two) = (client(Kind::Postgres, url).await, client(Kind::Postgres, url).await);
        let name = format!("a{n}");
        let held = one.lock(&*name).ttl(LONGEST).await.expect("a free lock");
        let waiting = tokio::spawn(two.lock(&*name).wait(Duration::from_secs(30)).into_future());
        let places = "SELECT count(*) FROM busy_waiters";
        while server.admin_sql(places).await.expect("an answer").trim() == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let near = "UPDATE busy_state SET token_bound = 4294967297; UPDATE busy_mark SET token_limit = 1";
        server.admin_sql(near).await.expect("an administrator");
        sqlx::raw_sql(lock_row).execute(&mut other).await.expect("locked");
        held.release().await.expect("held");
        let ends = format!("SELECT ends_at IS NULL FROM busy WHERE name = '{name}'");
        assert_eq!(server.admin_sql(&ends).await.expect("an answer").trim(), "t", "it is free");
        let refused = one.lock("b").try_now().await;
        assert!(matches!(&refused, Ok(None)), "{refused:?}");
        sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("it ends");
        waiting.await.expect("no panic").expect("its turn").release().await.expect("held");
    }
    // The first lazy grant of another client.
    server.admin_sql("UPDATE busy_state SET lazy_since = NULL").await.expect("an administrator");
    let locks = client(Kind::Postgres, &lazy).await;
    sqlx::raw_sql(lock_row).execute(&mut other).await.expect("locked");
    let refused = locks.lock("c").try_now().await;
    assert!(matches!(&refused, Ok(None)), "{refused:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.expect("it ends");
    is_granted_later(&locks, "c").await;
}

/// Whoever was freed by force could reclaim the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_is_purged_before_the_longest_lease_has_ended() {
    let Some((server, url)) = forgetful("freed").await else { return };
    let lock = PostgresLock::connect(&url.parse().expect("an address")).await.expect("a connection");
    let purged = async || lock.purge(Duration::from_millis(1)).await.expect("an answer");
    let later = async |seconds: u32| {
        let sql =
            format!("UPDATE freed SET acquired_at = acquired_at - interval '{seconds}s', ends_at = NULL");
        server.admin_sql(&sql).await.expect("an administrator");
    };
    server.admin_sql("UPDATE freed SET acquired_at = clock_timestamp()").await.expect("an administrator");
    later(1).await;
    assert_eq!(purged().await, 0);
    later(4).await;
    assert_eq!(purged().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_dropped_in_part_are_made_again() {
    let Some((server, durable, lazy)) = both("part").await else { return };
    for url in [&durable, &lazy] {
        for dropped in ["part", "part_members", "part_mark", "part, part_members"] {
            server.admin_sql(&format!("DROP TABLE {dropped}")).await.expect("dropped");
            is_granted_later(&client(Kind::Postgres, url).await, "a").await;
        }
    }
    server
        .admin_sql("DROP TABLE part, part_state; CREATE TABLE part_state (one int, longest_ttl bigint)")
        .await
        .expect("old");
    let error = backend(Kind::Postgres, &durable).await.map(drop).expect_err("other tables");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("drop them"), "{error:#}");
}

/// The statement of the guide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_can_refuse_lazy_clients() {
    let Some((server, durable, lazy)) = both("strict").await else { return };
    let statement = "ALTER TABLE strict_state ADD CONSTRAINT no_grace CHECK (lazy_since IS NULL)";
    server.admin_sql(statement).await.expect("an administrator");
    let lock = backend(Kind::Postgres, &lazy).await.expect("a connection");
    let error = lock.acquire(&claim("a", Mode::Exclusive, LONGEST)).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("use durability=disk"), "{error:#}");
    is_granted_later(&client(Kind::Postgres, &durable).await, "a").await;
}
