//! The check of a lock inside the user's own transaction.

use std::time::{Duration, Instant};

use backend_sql::{MySqlVerify, PostgresVerify, SqliteVerify};
use lockcore::{ErrorKind, LockGuard, Locks};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

use crate::servers::{Kind, client, url};

/// A lock that was stolen is refused inside the transaction.
async fn stolen(locks: &Locks, thief: &Locks, name: &str) -> (LockGuard, LockGuard) {
    let guard = locks.lock(name).await.expect("a free lock");
    assert_eq!(thief.force_release(name).await.expect("an answer"), 1);
    (guard, thief.lock(name).await.expect("a freed lock"))
}

/// While a transaction has verified a lock, it does not change hands, even when its lease has ended; and other locks are
/// not held up for long. Returns the longest time that another lock took.
async fn others_go_on(locks: &Locks, other: &Locks, name: &str, until: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        for client in [locks, other] {
            let start = Instant::now();
            client.lock("another").await.expect("a free lock").release().await.expect("held");
            longest = longest.max(start.elapsed());
        }
        let taken = other.lock(name).try_now().await.expect("an answer");
        assert!(taken.is_none(), "the lock changed hands under an open transaction");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    longest
}

macro_rules! verify_test {
    ($test:ident, $kind:expr, $connection:ty, $verify:ident, $most:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let Some(url) = url($kind, "verified").await else { return };
            let (locks, other) = (client($kind, &url).await, client($kind, &url).await);
            let address = url.split('?').next().expect("an address");
            let mut connection = <$connection>::connect(address).await.expect("a connection");

            let (guard, thief) = stolen(&locks, &other, "stolen").await;
            let mut transaction = connection.begin().await.expect("a transaction");
            let error = $verify::verify_in(&guard, &mut transaction).await.expect_err("stolen");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            transaction.rollback().await.expect("rolled back");
            thief.release().await.expect("held");
            drop(guard);

            // The transaction is open for longer than the lease lasts.
            let guard = locks.lock("kept").ttl(Duration::from_millis(1500)).await.expect("a free lock");
            let bystander = locks.lock("bystander").ttl(Duration::from_secs(4)).await.expect("a free lock");
            let mut transaction = connection.begin().await.expect("a transaction");
            $verify::verify_in(&guard, &mut transaction).await.expect("held");
            if $kind != Kind::Sqlite {
                let until = Instant::now() + Duration::from_secs(5);
                let longest = others_go_on(&locks, &other, "kept", until).await;
                println!("{:?}: another lock took at most {longest:?}", $kind);
                assert!(longest < $most, "another lock took {longest:?}");
                assert!(bystander.is_held(), "the renewals of other locks stopped");
            }
            let release = tokio::spawn(guard.release());
            tokio::time::sleep(Duration::from_millis(300)).await;
            transaction.commit().await.expect("committed");
            release.await.expect("no panic").expect("released after the commit");
            assert!(!locks.inspect("kept").await.expect("an answer").is_held());
            drop(bystander);
        }
    };
}

verify_test!(on_postgres, Kind::Postgres, PgConnection, PostgresVerify, Duration::from_secs(1));
// MySQL counts the time that a statement waits for a row in whole seconds.
verify_test!(on_mariadb, Kind::MariaDb, MySqlConnection, MySqlVerify, Duration::from_secs(4));
verify_test!(on_sqlite, Kind::Sqlite, SqliteConnection, SqliteVerify, Duration::from_secs(1));
