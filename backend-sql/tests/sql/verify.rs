//! The check of a lock inside the user's own transaction.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lockwell_core::{ErrorKind, LockGuard, Locks, Mode, Renewal, Requirement};
use lockwell_sql::{MySqlVerify, PostgresVerify, SqliteVerify};
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

use crate::servers::{Kind, admin, claim, client, permit, session, soon, url};

/// A lock that was stolen is refused inside the transaction.
async fn stolen(locks: &Locks, thief: &Locks, name: &str) -> (LockGuard, LockGuard) {
    let guard = locks.lock(name).await.expect("a free lock");
    assert_eq!(thief.force_release(name).await.expect("an answer"), 1);
    (guard, thief.lock(name).await.expect("a freed lock"))
}

/// While a transaction has verified a lock, it does not change hands, even when its lease has ended; and
/// other locks are not held up for long. Returns the longest time that another lock took.
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
            let released = release.await.expect("no panic").map_err(|error| error.kind());
            // Elsewhere than on SQLite the deadline had passed when the release began.
            let expected = if $kind == Kind::Sqlite { Ok(()) } else { Err(ErrorKind::Lost) };
            assert_eq!(released, expected, "after the commit");
            assert!(!locks.inspect("kept").await.expect("an answer").is_held());
            drop(bystander);
        }
    };
}

verify_test!(on_postgres, Kind::Postgres, PgConnection, PostgresVerify, Duration::from_secs(1));
verify_test!(on_mariadb, Kind::MariaDb, MySqlConnection, MySqlVerify, Duration::from_secs(1));
verify_test!(on_sqlite, Kind::Sqlite, SqliteConnection, SqliteVerify, Duration::from_secs(1));

/// While a transaction has verified a reader, no writer gets in, even when the reader's lease has ended;
/// other readers come, go and stay meanwhile. The same for permits.
async fn others_come_and_go(locks: &Locks, other: &Locks, until: Instant) {
    while Instant::now() < until {
        for client in [locks, other] {
            let reader = client.read("book").wait(Duration::from_secs(10)).await.expect("readers meet");
            reader.release().await.expect("held");
            assert!(
                client.permit("slots", 2).try_now().await.expect("an answer").is_none(),
                "a third permit"
            );
        }
        let writer = other.write("book").wait(Duration::from_millis(50)).await;
        let error = writer.expect_err("the lock changed hands under an open transaction");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The lock is in another file than the one that the transaction writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_another_database_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
    let locks = client(Kind::Sqlite, &url("ours")).await;
    assert!(locks.capabilities().promises(Requirement::VerifyInSqlite));
    client(Kind::Sqlite, &url("theirs")).await.close().await.expect("closed");
    let guard = locks.lock("a").await.expect("a free lock");
    for (name, part) in [("theirs", "not held any more"), ("empty", "no such table")] {
        let address = format!("{}?mode=rwc", url(name));
        let mut connection = SqliteConnection::connect(&address).await.expect("a connection");
        let mut transaction = connection.begin().await.expect("a transaction");
        let error = SqliteVerify::verify_in(&guard, &mut transaction).await.expect_err("another file");
        assert!(format!("{error:#}").contains(part), "{error:#}");
    }
    guard.release().await.expect("held");
}

macro_rules! verify_members_test {
    ($test:ident, $kind:expr, $connection:ty, $verify:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let Some(url) = url($kind, "members").await else { return };
            let (locks, other) = (client($kind, &url).await, client($kind, &url).await);
            let address = url.split('?').next().expect("an address");
            let mut connection = <$connection>::connect(address).await.expect("a connection");

            let reader = locks.read("stolen").await.expect("a free lock");
            assert_eq!(other.force_release("stolen").await.expect("an answer"), 1);
            let thief = other.read("stolen").await.expect("a freed lock");
            let mut transaction = connection.begin().await.expect("a transaction");
            let error = $verify::verify_in(&reader, &mut transaction).await.expect_err("stolen");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            transaction.rollback().await.expect("rolled back");
            drop((reader, thief));

            // The transaction is open for longer than the leases last, and nobody renews them.
            let short = Duration::from_millis(500);
            let backend = locks.backend();
            let grant = |name: &'static str, mode| async move {
                backend.acquire(&claim(name, mode, short)).await.expect("an answer").expect("a free lock")
            };
            let reader = grant("book", Mode::Shared).await;
            let slot = grant("slots", permit(2)).await;
            let bystander = locks.read("book").ttl(Duration::from_secs(4)).await.expect("readers meet");
            let second = locks.permit("slots", 2).await.expect("a free permit");
            let mut transaction = connection.begin().await.expect("a transaction");
            for one in [&reader, &slot] {
                $verify::verify_in(one, &mut transaction).await.expect("held");
            }
            if $kind != Kind::Sqlite {
                others_come_and_go(&locks, &other, Instant::now() + Duration::from_secs(5)).await;
                assert!(bystander.is_held(), "the renewals of other readers stopped");
            }
            for one in [&reader, &slot] {
                $verify::verify_in(one, &mut transaction).await.expect("held until the end");
            }
            transaction.commit().await.expect("committed");
            bystander.release().await.expect("held");
            second.release().await.expect("held");
            let writer =
                other.write("book").wait(Duration::from_secs(20)).await.expect("the dead do not stay");
            let mut transaction = connection.begin().await.expect("a transaction");
            let error = $verify::verify_in(&reader, &mut transaction).await.expect_err("its lease has ended");
            assert_eq!(error.kind(), ErrorKind::Lost, "{error:#}");
            transaction.rollback().await.expect("rolled back");

            // What was a writer's is verified as the reader's that it is now; a block of tokens by its last
            // one.
            let reader = writer.downgrade().await.expect("held");
            let mine = claim("blocks", Mode::Exclusive, Duration::from_secs(20)).reserving(THREE);
            let block = backend.acquire(&mine).await.expect("an answer").expect("a free lock");
            let mut transaction = connection.begin().await.expect("a transaction");
            $verify::verify_in(&reader, &mut transaction).await.expect("held");
            $verify::verify_in(&block, &mut transaction).await.expect("held");
            let release = tokio::spawn(reader.release());
            tokio::time::sleep(Duration::from_millis(300)).await;
            transaction.commit().await.expect("committed");
            release.await.expect("no panic").expect("released after the commit");
        }
    };
}

const THREE: NonZeroU32 = NonZeroU32::new(3).expect("not zero");

verify_members_test!(members_on_postgres, Kind::Postgres, PgConnection, PostgresVerify);
verify_members_test!(members_on_mariadb, Kind::MariaDb, MySqlConnection, MySqlVerify);
verify_members_test!(members_on_sqlite, Kind::Sqlite, SqliteConnection, SqliteVerify);

/// In an XA transaction the shared lock of the row does not last until the end: it is given up at the
/// `XA PREPARE`, or when the server starts again after that. So it is refused, whatever the hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xa_transaction_is_refused() {
    let Some(url) = url(Kind::MariaDb, "prepared").await else { return };
    let locks = client(Kind::MariaDb, &url).await;
    let (writer, reader) = (locks.lock("a").await.expect("free"), locks.read("b").await.expect("free"));
    let address = url.split('?').next().expect("an address");
    for grant in [writer.grant(), reader.grant()] {
        let mut connection = MySqlConnection::connect(address).await.expect("a connection");
        let mut transaction = connection.begin().await.expect("a transaction");
        MySqlVerify::verify_in(grant, &mut transaction).await.expect("held");
        let begin = sqlx::raw_sql("COMMIT; XA START 'two phases'");
        begin.execute(&mut *transaction).await.expect("an XA transaction");
        let error = MySqlVerify::verify_in(grant, &mut transaction).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
        assert!(error.to_string().contains("XA"), "{error:#}");
        let end = sqlx::raw_sql("XA END 'two phases'; XA ROLLBACK 'two phases'");
        end.execute(&mut *transaction).await.expect("it ends");
    }
}

/// A transaction with a snapshot from before a renewal cannot lock the row: it is told to begin again, and
/// then it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_meets_a_repeatable_read() {
    let Some(url) = url(Kind::Postgres, "repeated").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    let mine = claim("a", Mode::Exclusive, Duration::from_secs(30));
    let grant = locks.backend().acquire(&mine).await.expect("an answer").expect("a free lock");
    let mut connection = session(&url).await;
    for renewed in [true, false] {
        let mut transaction =
            connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("a transaction");
        sqlx::raw_sql("SELECT 1").execute(&mut *transaction).await.expect("a snapshot");
        if renewed {
            let outcome = locks.backend().renew(std::slice::from_ref(&grant), soon()).await;
            assert!(matches!(outcome[..], [Renewal::Renewed(_)]), "{outcome:?}");
            let error = PostgresVerify::verify_in(&grant, &mut transaction).await.expect_err("a conflict");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:#}");
            assert!(error.is_retryable() && error.to_string().contains("verify first"), "{error:#}");
        } else {
            PostgresVerify::verify_in(&grant, &mut transaction).await.expect("held");
        }
        transaction.rollback().await.expect("rolled back");
    }
}

/// What the user of the transaction needs is what the documentation says, whatever the search path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_transaction() {
    let Some(url) = url(Kind::Postgres, "verified_by").await else { return };
    let locks = client(Kind::Postgres, &url).await;
    let (writer, reader) = (locks.lock("a").await.expect("free"), locks.read("b").await.expect("free"));
    let sql = "CREATE ROLE verifier LOGIN; ALTER ROLE verifier SET search_path = '';
        GRANT SELECT ON verified_by, verified_by_members, verified_by_state, verified_by_mark TO verifier";
    admin(Kind::Postgres, &url, sql).await;
    let mut connection = session(&url.replace("postgres@", "verifier@")).await;
    for allowed in [false, true] {
        for grant in [writer.grant(), reader.grant()] {
            let mut transaction = connection.begin().await.expect("a transaction");
            match PostgresVerify::verify_in(grant, &mut transaction).await {
                Ok(()) => assert!(allowed),
                Err(error) => assert!(!allowed && error.kind() == ErrorKind::Refused, "{error:#}"),
            }
            transaction.rollback().await.expect("rolled back");
        }
        admin(Kind::Postgres, &url, "GRANT UPDATE ON verified_by, verified_by_members TO verifier").await;
    }
}
