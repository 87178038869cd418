//! Tables of PostgreSQL on which grants wait for no disk: what is part of the tables, and other tables of the
//! same name.

use std::time::Duration;

use lockwell_core::{ErrorKind, Mode};

use crate::grace::{LONGEST, forgetful, is_closed, is_granted_later};
use crate::servers::{Kind, backend, claim, client};

/// No server would wait for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_lease_is_refused() {
    let Some((server, url)) = forgetful("long").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    let longer = LONGEST + Duration::from_millis(1);
    let delayed = locks.lock("a").ttl(LONGEST).lock_delay(Duration::from_millis(1));
    for request in [locks.lock("a").ttl(longer), locks.read("a").ttl(longer), delayed] {
        let error = request.await.expect_err("it is too long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        assert!(error.to_string().contains("4s"), "{error:#}");
    }
    // The tables are made anew, for other leases.
    let lock = locks.backend();
    for (longest, ttl) in [("9s", LONGEST), ("4s", longer)] {
        let drop_all = "DROP TABLE long, long_members, long_waiters, long_clients, long_state, long_mark";
        server.admin_sql(drop_all).await.expect("dropped");
        let other = client(Kind::Postgres, &url.replace("=4s", &format!("={longest}"))).await;
        is_granted_later(&other, "b").await;
        server.admin_sql("DELETE FROM long_mark WHERE lost_ttl > 4000000").await.expect("an answer");
        for mode in [Mode::Exclusive, Mode::Shared] {
            let error = lock.acquire(&claim("a", mode, ttl)).await.expect_err("not what it knows");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            assert!(error.to_string().contains("connect again"), "{error:#}");
        }
    }
}

/// The files of a table change when it is restored from a dump, emptied or rewritten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_replaced_is_not_trusted() {
    let Some((server, url)) = forgetful("replaced").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    for change in ["TRUNCATE replaced", "VACUUM FULL replaced_members", "DELETE FROM replaced_mark"] {
        locks.lock("a").wait(Duration::from_secs(30)).await.expect("its turn").release().await.expect("held");
        server.admin_sql(change).await.expect(change);
        is_closed(&locks, "a").await;
    }
}

/// A client of the tables says how its own grants commit. The longest lease that a crash may lose is that of all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_cannot_change_the_longest_lease() {
    let Some((server, url)) = forgetful("made").await else { return };
    let connect = async |url: &str| backend(Kind::Postgres, url).await;
    connect(&url).await.expect("new tables");
    let plain = format!("{}?table=made", server.url());
    let error = connect(&format!("{plain}&durability=grace&longest_ttl=9s")).await.expect_err("another");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
    assert!(error.to_string().contains("longest_ttl=4000ms"), "{error:#}");
    for bad in ["&durability=none", "&longest_ttl=9s", "&durability=grace&longest_ttl=1s"] {
        let error = connect(&format!("{plain}{bad}")).await.expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    }
    let followed = connect(&format!("{plain}&durability=grace")).await.expect("it finds out");
    assert_eq!(followed.capabilities().max_ttl(), LONGEST);
    // The statement of the guide.
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sql.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, statement) = guide.split_once("`UPDATE lockwell_locks_state").expect("a statement");
    let statement = format!("UPDATE made_state{}", statement.split('`').next().expect("its end"));
    let statement = statement.replace("lockwell_locks", "made");
    // Tokens of grants that a crash has lost would come again.
    server.admin_sql("DELETE FROM made_mark").await.expect("as after a crash");
    let locks = client(Kind::Postgres, &url).await;
    is_closed(&locks, "a").await;
    is_granted_later(&locks, "a").await;
    let lazy = "SELECT lazy_since IS NOT NULL FROM made_state";
    server.admin_sql(&statement).await.expect("an administrator");
    assert_eq!(server.admin_sql(lazy).await.expect("an answer").trim(), "t", "tokens are ahead of the clock");
    let later = "UPDATE made_mark SET token_floor = 1, tables[1] = 'x' || tables[1]";
    server.admin_sql(later).await.expect("some hours later");
    server.admin_sql(&statement).await.expect("an administrator");
    assert_eq!(
        server.admin_sql(lazy).await.expect("an answer").trim(),
        "t",
        "the mark of other files is none"
    );
    let ours = "UPDATE made_mark SET tables[1] = pg_relation_filepath('made')";
    server.admin_sql(ours).await.expect("an administrator");
    server.admin_sql(&statement).await.expect("an administrator");
    assert_eq!(server.admin_sql(lazy).await.expect("an answer").trim(), "f");
    let longer = connect(&format!("{plain}&durability=grace&longest_ttl=9s")).await.expect("the first one");
    longer.acquire(&claim("a", Mode::Exclusive, LONGEST * 2)).await.expect("an answer").expect("free");
}

/// Whoever knows other tables of the same name does what the other clients of these tables do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_made_anew_are_used_by_all_in_the_same_way() {
    let Some((server, url)) = forgetful("anew").await else { return };
    let disk = format!("{}?table=anew", server.url());
    let drop_all = async || {
        let sql =
            "DROP TABLE IF EXISTS anew, anew_members, anew_waiters, anew_clients, anew_state, anew_mark";
        server.admin_sql(sql).await.expect("dropped");
    };
    for pooled in ["", "&pooled=true"] {
        for (before, after) in [(&disk, &url), (&url, &disk)] {
            drop_all().await;
            let old = client(Kind::Postgres, &format!("{before}{pooled}")).await;
            old.lock("a").await.expect("a free lock").release().await.expect("held");
            old.read("a").await.expect("a free lock").release().await.expect("held");
            drop_all().await;
            let new = client(Kind::Postgres, after).await;
            let guard = new.lock("a").await.expect("a free lock");
            assert!(old.lock("a").try_now().await.expect("an answer").is_none());
            for request in [old.lock("b"), old.read("c"), old.permit("d", 2)] {
                request.ttl(LONGEST).await.expect("a free lock").release().await.expect("held");
            }
            guard.release().await.expect("held");
            server.admin_sql("DELETE FROM anew_mark").await.expect("as after a crash");
            for locks in [&old, &new] {
                is_closed(locks, "a").await;
            }
        }
    }
}

/// They are needed an hour later, or after a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_needed_later_are_checked_when_connecting() {
    let Some((server, url)) = forgetful("allowed").await else { return };
    client(Kind::Postgres, &url).await;
    let grant =
        "CREATE ROLE app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app";
    server.admin_sql(grant).await.expect("a role");
    let url = url.replace("postgres@", "app@") + "&create=false";
    for (right, table) in
        [("UPDATE", "allowed_state"), ("INSERT", "allowed_mark"), ("UPDATE", "allowed_mark")]
    {
        server.admin_sql(&format!("REVOKE {right} ON {table} FROM app")).await.expect("an administrator");
        let error = backend(Kind::Postgres, &url).await.map(drop).expect_err("a right is missing");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert!(error.to_string().contains("GRANT SELECT, INSERT, UPDATE"), "{error:#}");
        server.admin_sql(&format!("GRANT {right} ON {table} TO app")).await.expect("an administrator");
    }
    let right = "EXECUTE ON FUNCTION pg_control_system()";
    server.admin_sql(&format!("REVOKE {right} FROM PUBLIC")).await.expect("an administrator");
    for url in [&url, &url.replace("&durability=grace&longest_ttl=4s", "")] {
        let error = backend(Kind::Postgres, url).await.map(drop).expect_err("a right is missing");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert!(error.to_string().contains(right), "{error:#}");
    }
    // Before the first lazy grant, a client that makes none needs no such right.
    server.admin_sql("UPDATE allowed_state SET lazy_since = NULL").await.expect("an administrator");
    let error = backend(Kind::Postgres, &url).await.map(drop).expect_err("a right is missing");
    assert!(error.to_string().contains(right), "{error:#}");
    let durable = client(Kind::Postgres, &url.replace("&durability=grace&longest_ttl=4s", "")).await;
    let held = durable.lock("held").ttl(LONGEST).await.expect("a free lock");
    // Who holds a lock when another client makes the first one keeps it over new connections.
    let lazy = "UPDATE allowed_state SET lazy_since = 0, longest_ttl = 4000000;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'app'";
    server.admin_sql(lazy).await.expect("an administrator");
    tokio::time::sleep(2 * LONGEST).await;
    held.check().expect("renewed over a new connection");
    held.release().await.expect("held");
    server.admin_sql(&format!("GRANT {right} TO app")).await.expect("an administrator");
    let locks = client(Kind::Postgres, &url).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
}
