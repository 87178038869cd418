//! The table of records, which an upgrade does not find.

use std::net::TcpListener;
use std::time::Duration;

use lockwell_core::{ErrorKind, Locks, Mode, RecordKind, RecordWrite, Renewal, Requirement};
use sqlx::{AssertSqlSafe, Connection};

use crate::purge::Purger;
use crate::servers::{ALL, Kind, admin, backend, claim, client, count, proxy, session, soon, through, url};

async fn are_written(locks: &Locks, name: &str) {
    assert!(locks.capabilities().promises(Requirement::Records));
    let guard = locks.lock(name).await.expect("a free lock");
    guard.write_record("x").await.expect("held");
    assert_eq!(guard.read_record().await.expect("an answer").expect("it was written").value, b"x");
    guard.release().await.expect("held");
}

/// All else works.
async fn are_not_promised(locks: &Locks, name: &str) {
    assert!(!locks.capabilities().promises(Requirement::Records));
    let guard = locks.lock(name).await.expect("a free lock");
    let error = guard.write_record("x").await.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    let error = locks.record(name).await.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    guard.release().await.expect("held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_missing_is_made_or_nothing_is_promised() {
    for kind in ALL {
        let Some(url) = url(kind, "unrecorded").await else { continue };
        are_written(&client(kind, &url).await, "a").await;
        admin(kind, &url, "DROP TABLE unrecorded_records").await;
        are_not_promised(&client(kind, &format!("{url}&create=false")).await, "a").await;
        are_written(&client(kind, &url).await, "a").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_neither_make_nor_write_the_table_is_promised_nothing() {
    let kind = Kind::Postgres;
    let Some(url) = url(kind, "unwritten").await else { return };
    are_written(&client(kind, &url).await, "a").await;
    let sql = "CREATE ROLE before LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE
               ON unwritten, unwritten_waiters, unwritten_clients, unwritten_members, unwritten_state, unwritten_mark TO before";
    admin(kind, &url, sql).await;
    let url = url.replace("postgres@", "before@");
    are_not_promised(&client(kind, &url).await, "a").await;
}

/// What idle locks leave behind is deleted, and their records are not. A record that was removed is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_deletes_what_was_removed() {
    for kind in ALL {
        let Some(url) = url(kind, "purged_values").await else { continue };
        let locks = client(kind, &url).await;
        for (name, value) in [("kept", "x"), ("removed", "")] {
            let guard = locks.lock(name).await.expect("a free lock");
            guard.write_record("x").await.expect("held");
            guard.write_record(value).await.expect("held");
            guard.release().await.expect("held");
        }
        Purger::connect(kind, &url).await.purge(Duration::ZERO).await;
        assert_eq!(count(kind, &url, "purged_values_records").await, "1", "{kind:?}");
        assert_eq!(locks.record("kept").await.expect("an answer").expect("it was written").value, b"x");
    }
}

/// Who has lost the answer sends the write once more, while the server still does the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_write_do_not_wait_for_each_other() {
    let kind = Kind::MariaDb;
    let Some(url) = url(kind, "copied").await else { return };
    let locks = client(kind, &url).await;
    let guard = locks.lock("a").ttl(Duration::from_mins(1)).await.expect("a free lock");
    let grant = guard.grant().clone();
    let mut copies = Vec::new();
    for _ in 0..4 {
        let (locks, grant) = (client(kind, &url).await, grant.clone());
        copies.push(tokio::spawn(async move {
            for number in 1..=100 {
                let write = RecordWrite { kind: RecordKind::Value, number, value: b"x" };
                drop(locks.backend().write_record(&grant, write).await);
            }
        }));
    }
    for copies in copies {
        copies.await.expect("no panic");
    }
    let status = admin(kind, &url, "SHOW ENGINE INNODB STATUS").await;
    let deadlock = status.split("LATEST DETECTED DEADLOCK").nth(1).unwrap_or_default();
    let deadlock = deadlock.split("TRANSACTIONS\n---").next().unwrap_or_default();
    assert!(!deadlock.contains("copied_records"), "{deadlock}");
    guard.release().await.expect("held");
}

/// A renewal is repeated for the rows that a write has at the moment. If that fails, it says nothing of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_locked_makes_no_other_lease_unknown() {
    let kind = Kind::Postgres;
    let Some(url) = url(kind, "in_between").await else { return };
    let proxy = proxy(kind).await.expect("it runs");
    let lock = backend(kind, &through(&url, &proxy)).await.expect("a connection");
    let mut grants = Vec::new();
    for name in ["free", "locked"] {
        let claim = claim(name, Mode::Exclusive, Duration::from_mins(1));
        grants.push(lock.acquire(&claim).await.expect("an answer").expect("a free lock"));
    }
    let renewed = lock.renew(&grants, soon()).await;
    assert!(renewed.iter().all(|one| matches!(one, Renewal::Renewed(_))), "{renewed:?}");
    let mut user = session(&url).await;
    let mut transaction = user.begin().await.expect("a transaction");
    let row = "SELECT 1 FROM in_between WHERE name = 'locked' FOR UPDATE";
    sqlx::raw_sql(AssertSqlSafe(row)).execute(&mut *transaction).await.expect("a row");
    // The answer to the repetition is lost, and there is no other connection.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port");
    proxy.redirect(closed);
    proxy.drop_reply(2);
    let renewed = lock.renew(&grants, soon()).await;
    assert!(matches!(renewed[..], [Renewal::Renewed(_), Renewal::Unknown(_)]), "{renewed:?}");
    assert_eq!(proxy.dropped_replies(), 1);
    transaction.rollback().await.expect("open");
}
