//! Transactions that have verified a lock which is handed on from task to task.

use std::time::Duration;

use lockwell_core::{ErrorKind, LockGuard, LockHandle, Locks, Result};
use lockwell_sql::{MySqlVerify, PostgresVerify, SqliteVerify};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tokio::task::JoinHandle;

use crate::servers::{Kind, backend, url};

const LONG: Duration = Duration::from_mins(1);

/// A task that waits for the lock while another one holds it.
async fn waiting(locks: &Locks) -> JoinHandle<Result<LockGuard>> {
    let mut next = Box::pin(locks.lock("handed").ttl(LONG).wait(LONG).into_future());
    assert!(tokio::time::timeout(Duration::ZERO, &mut next).await.is_err(), "it is held");
    tokio::spawn(next)
}

/// A lock that was handed on, and a handle of the task before.
async fn handed(locks: &Locks) -> (LockHandle, LockGuard) {
    let mut guard = locks.lock("handed").ttl(LONG).await.expect("a free lock");
    loop {
        let before = guard.handle();
        let next = waiting(locks).await;
        drop(guard);
        guard = next.await.expect("no panic").expect("its turn comes");
        // On a machine that is busy, it may have come from the server.
        if guard.grant().claim().owner() == before.claim().owner() {
            return (before, guard);
        }
    }
}

macro_rules! handed_test {
    ($test:ident, $kind:expr, $connection:ty, $verify:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let Some(url) = url($kind, "handed").await else { return };
            let backend = backend($kind, &url).await.expect("a connection");
            let locks = Locks::new(backend).expect("a keeper").hand_off(1000, LONG);
            let address = url.split('?').next().expect("an address");
            let mut connection = <$connection>::connect(address).await.expect("a connection");

            let (stale, guard) = handed(&locks).await;
            let mut transaction = connection.begin().await.expect("a transaction");
            let error = $verify::verify_in(&stale, &mut transaction).await.expect_err("it was handed on");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            $verify::verify_in(&guard, &mut transaction).await.expect("held");
            let mut next = waiting(&locks).await;
            drop(guard);
            let early = tokio::time::timeout(Duration::from_millis(500), &mut next).await;
            assert!(early.is_err(), "the lock changed hands under an open transaction: {early:?}");
            transaction.commit().await.expect("committed");
            let guard = next.await.expect("no panic").expect("the transaction has ended");
            guard.release().await.expect("held");
        }
    };
}

handed_test!(on_postgres, Kind::Postgres, PgConnection, PostgresVerify);
handed_test!(on_mariadb, Kind::MariaDb, MySqlConnection, MySqlVerify);
handed_test!(on_sqlite, Kind::Sqlite, SqliteConnection, SqliteVerify);
