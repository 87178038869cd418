//! Tables of PostgreSQL on which grants wait for no disk: what is part of the tables, and other tables of the
//! same name.

use std::time::Duration;

use lockwell_core::{ErrorKind, Mode};

use crate::crash::crash;
use crate::grace::{LONGEST, forgetful, is_closed};
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
        client(Kind::Postgres, &url.replace("=4s", &format!("={longest}"))).await;
        server.admin_sql("DELETE FROM long_mark WHERE longest_ttl > 4000000").await.expect("an answer");
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

/// The tables decide, since all clients must do the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_cannot_change_the_tables() {
    let Some((server, url)) = forgetful("made").await else { return };
    let connect = async |url: &str| backend(Kind::Postgres, url).await;
    connect(&url).await.expect("new tables");
    let plain = format!("{}?table=made", server.url());
    let followed = connect(&plain).await.expect("it finds out");
    let held = claim("a", Mode::Exclusive, LONGEST);
    followed.acquire(&held).await.expect("an answer").expect("a free lock");
    crash(&server).await;
    let error = followed.acquire(&claim("b", Mode::Exclusive, LONGEST)).await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::GracePeriod, "{error:#}");
    for (more, complaint) in
        [("&durability=disk", "durability=grace"), ("&durability=grace&longest_ttl=9s", "longest_ttl=4000ms")]
    {
        let error = connect(&format!("{plain}{more}")).await.expect_err(more);
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
        assert!(error.to_string().contains(complaint), "{error:#}");
    }
    for bad in ["&durability=none", "&longest_ttl=9s", "&durability=grace&longest_ttl=1s"] {
        let error = connect(&format!("{plain}{bad}")).await.expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    }
    let disk = format!("{}?table=disk", server.url());
    connect(&disk).await.expect("new tables");
    let error = connect(&format!("{disk}&durability=grace")).await.expect_err("others");
    assert!(
        error.kind() == ErrorKind::Misconfigured && error.to_string().contains("durability=disk"),
        "{error:#}"
    );
}

/// Whoever knows other tables of the same name does not do what the other clients of these tables do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_made_anew_are_not_taken_for_those_before() {
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
            for request in [old.lock("a"), old.lock("b"), old.read("b"), old.permit("b", 2)] {
                let error = request.wait(Duration::from_secs(30)).await.expect_err("other tables");
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
                assert!(error.to_string().contains("connect again"), "{error:#}");
            }
            let error = old.force_release("a").await.expect_err("other tables");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:#}");
            guard.release().await.expect("held");
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
    let locks = client(Kind::Postgres, &url).await;
    locks.lock("a").await.expect("a free lock").release().await.expect("held");
}
