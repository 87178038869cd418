//! Tables that an administrator has locked are not missing, and a claim says so.

use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LockGuard, Locks};
use sqlx::{Connection, Executor};
use testbed::{MariaDb, Postgres, if_installed};

use crate::servers::{Kind, backend, client, options, session, url};

fn says_locked(error: &lockwell_core::Error) {
    let text = format!("{error:#}");
    assert!(error.kind() == ErrorKind::Unreachable && text.contains("lock tables locked"), "{text}");
    assert!(!text.contains("missing"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    backend(Kind::Postgres, &server.url()).await.expect("the tables are made");
    let rights = "CREATE ROLE worker LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker";
    server.admin_sql(rights).await.expect("a role");
    let mut admin = session(&server.url()).await;
    let mut locked = admin.begin().await.expect("a transaction");
    locked.execute("LOCK TABLE lockwell_locks IN ACCESS EXCLUSIVE MODE").await.expect("free");
    let worker = server.url().replace("postgres@", "worker@");
    for url in [server.url(), worker.clone()] {
        says_locked(&backend(Kind::Postgres, &url).await.expect_err("a locked table"));
    }
    locked.rollback().await.expect("open");
    backend(Kind::Postgres, &worker).await.expect("free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
    backend(Kind::MariaDb, &server.url()).await.expect("the tables are made");
    let lock = server.admin_sql("LOCK TABLES lockwell.lockwell_locks WRITE; SELECT SLEEP(8)");
    let connect = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        says_locked(&backend(Kind::MariaDb, &server.url()).await.expect_err("a locked table"));
    };
    let (locked, ()) = tokio::join!(lock, connect);
    locked.expect("an administrator");
    backend(Kind::MariaDb, &server.url()).await.expect("free again");
}

/// Why the renewals of a lock fail.
async fn failure(guard: &LockGuard) -> String {
    let end = Instant::now() + Duration::from_mins(1);
    while guard.renewal_failure().is_none() {
        assert!(Instant::now() < end, "no renewal fails");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    guard.renewal_failure().expect("it has failed")
}

async fn held(locks: &Locks) -> LockGuard {
    locks.lock("backup").ttl(Duration::from_secs(8)).await.expect("a free lock")
}

/// What a dump with the usual options of `mysqldump` does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_waits_for_a_table_says_so_on_mariadb() {
    let Some(server) = if_installed(MariaDb::start_with(&options()).await) else { return };
    let locks = client(Kind::MariaDb, &server.url()).await;
    let guard = held(&locks).await;
    let dump = server.admin_sql("LOCK TABLES lockwell.lockwell_locks READ; SELECT SLEEP(9)");
    let (dumped, why) = tokio::join!(dump, failure(&guard));
    dumped.expect("an administrator");
    assert!(why.contains("somebody has locked the table"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_waits_for_a_table_says_so_on_postgres() {
    let Some(server) = if_installed(Postgres::start_with(&options()).await) else { return };
    let locks = client(Kind::Postgres, &server.url()).await;
    let guard = held(&locks).await;
    let mut admin = session(&server.url()).await;
    let mut locked = admin.begin().await.expect("a transaction");
    locked.execute("LOCK TABLE lockwell_locks IN ACCESS EXCLUSIVE MODE").await.expect("free");
    let why = failure(&guard).await;
    assert!(why.contains("somebody has locked the table"), "{why}");
}

/// Another program that keeps a transaction open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_stays_locked_is_no_server_that_is_away() {
    let url = url(Kind::Sqlite, "kept").await.expect("no server is needed");
    let locks = client(Kind::Sqlite, &(url.clone() + "&timeout=3s")).await;
    let guard = locks.lock("backup").ttl(Duration::from_secs(4)).await.expect("a free lock");
    let address = url.split('?').next().expect("an address").to_owned() + "?mode=rw";
    let mut other = sqlx::SqliteConnection::connect(&address).await.expect("a connection");
    other.execute("BEGIN IMMEDIATE").await.expect("nobody writes");
    let why = failure(&guard).await;
    assert!(why.contains("another program") && !why.contains("cannot be reached"), "{why}");
    let refused = [
        locks.lock("other").try_now().await.map(|_| ()).expect_err("a locked file"),
        locks.lock("other").wait(Duration::from_secs(1)).await.map(|_| ()).expect_err("a locked file"),
        locks.lock("other").wait(Duration::from_secs(9)).await.map(|_| ()).expect_err("a locked file"),
    ];
    for error in refused {
        let text = format!("{error:#}");
        assert!(text.contains("another program") && !text.contains("cannot be reached"), "{text}");
    }
    other.execute("ROLLBACK").await.expect("open");
    drop(guard);
}
