//! Tables that an administrator has locked are not missing, and a claim says so.

use std::time::Duration;

use lockwell_core::ErrorKind;
use sqlx::{Connection, Executor};
use testbed::{MariaDb, Postgres, if_installed};

use crate::servers::{Kind, backend, options, session};

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
