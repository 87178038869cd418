//! The check of a lock as a routine of the server, for scripts.

use std::time::Duration;

use lockwell_core::{ErrorKind, LockGuard, Locks};
use lockwell_sql::verify_routine;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use crate::servers::{Kind, admin, client, session, url};

const NAME: &str = "it's 100%";

/// The call of the routine by the holder of this guard.
fn call(kind: Kind, guard: &LockGuard) -> String {
    let (token, hold) = (guard.token(), guard.hold_id());
    let verb = if kind == Kind::Postgres { "SELECT public." } else { "CALL " };
    format!("{verb}called_verify('it''s 100%', {token}, '{hold}')")
}

macro_rules! routine_test {
    ($test:ident, $kind:expr, $connection:ty, $table:literal) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let Some(url) = url($kind, $table).await else { return };
            let (locks, thief) = (client($kind, &url).await, client($kind, &url).await);
            let routine = verify_routine(&url.parse().expect("an address")).expect("it is named");
            let routine = routine.expect("there is one");
            // Twice: it replaces the one of an earlier version.
            admin($kind, &url, &format!("{routine}{routine}")).await;
            let address = url.split('?').next().expect("an address");
            let mut connection = <$connection>::connect(address).await.expect("a connection");

            // The token of the next holder is the same, as after a failover that has lost grants.
            let guard = locks.lock(NAME).await.expect("a free lock");
            assert_eq!(thief.force_release(NAME).await.expect("an answer"), 1);
            let other = thief.lock(NAME).await.expect("a freed lock");
            admin($kind, &url, &format!("UPDATE {} SET token = {}", $table, guard.token())).await;
            let mut transaction = connection.begin().await.expect("a transaction");
            let refused = sqlx::raw_sql(AssertSqlSafe(call($kind, &guard))).execute(&mut *transaction).await;
            let refused = refused.expect_err("another one holds it").to_string();
            assert!(refused.contains("is not held any more"), "{refused}");
            transaction.rollback().await.expect("rolled back");
            drop((guard, other));

            for shared in [false, true] {
                assert!(thief.force_release(NAME).await.is_ok());
                let request = if shared { locks.read(NAME) } else { locks.write(NAME) };
                let guard = request.ttl(Duration::from_mins(1)).await.expect("a free lock");
                let call = call($kind, &guard);
                let mut transaction = connection.begin().await.expect("a transaction");
                sqlx::raw_sql(AssertSqlSafe(call.as_str()))
                    .execute(&mut *transaction)
                    .await
                    .expect("it is held");
                let next = tokio::spawn(replaced(thief.clone()));
                tokio::time::sleep(Duration::from_millis(700)).await;
                assert!(!next.is_finished(), "the lock changed hands under an open transaction");
                transaction.commit().await.expect("committed");
                let next = tokio::time::timeout(Duration::from_secs(30), next).await.expect("after it");
                next.expect("no panic");
                let mut transaction = connection.begin().await.expect("a transaction");
                let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut *transaction).await;
                let refused = refused.expect_err("it was lost").to_string();
                assert!(refused.contains("is not held any more"), "{refused}");
                transaction.rollback().await.expect("rolled back");
            }
        }
    };
}

async fn replaced(thief: Locks) {
    while thief.force_release(NAME).await.is_err() {}
    thief.write(NAME).await.expect("a freed lock").release().await.expect("held");
}

routine_test!(on_postgres, Kind::Postgres, PgConnection, "public.called");
routine_test!(on_mariadb, Kind::MariaDb, MySqlConnection, "called");

/// Who calls it needs no rights on the tables, but one on the routine, and cannot make it read others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_caller_reads_no_owner() {
    let (kind, table) = (Kind::Postgres, "public.guarded");
    let Some(url) = url(kind, table).await else { return };
    let locks = client(kind, &url).await;
    let guard = locks.lock(NAME).await.expect("a free lock");
    let routine = verify_routine(&url.parse().expect("an address")).expect("it is named");
    admin(kind, &url, &(routine.expect("there is one") + "CREATE ROLE caller LOGIN")).await;
    let mut connection = session(&url.replace("postgres@", "caller@")).await;
    let hide = "CREATE TEMPORARY TABLE guarded (name text, owner uuid, token bigint, ends_at timestamptz)";
    sqlx::raw_sql(hide).execute(&mut connection).await.expect("a table of its own");
    let call = call(kind, &guard).replace("called", "guarded");
    let refused = sqlx::raw_sql(AssertSqlSafe(call.as_str())).execute(&mut connection).await;
    let refused = refused.expect_err("it was not granted").to_string();
    assert!(refused.contains("permission denied for function"), "{refused}");
    let grant = "GRANT EXECUTE ON FUNCTION public.guarded_verify(text, bigint, text) TO caller";
    admin(kind, &url, grant).await;
    sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut connection).await.expect("it is held");
    let refused = sqlx::raw_sql("SELECT owner FROM public.guarded").execute(&mut connection).await;
    assert!(refused.expect_err("no right").to_string().contains("permission denied"));
    let no_schema = url.replace("public.", "").parse().expect("an address");
    assert_eq!(verify_routine(&no_schema).expect_err("no schema").kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xa_transaction_is_refused() {
    let (kind, table) = (Kind::MariaDb, "xa");
    let Some(url) = url(kind, table).await else { return };
    let guard = client(kind, &url).await.lock(NAME).await.expect("a free lock");
    let routine = verify_routine(&url.parse().expect("an address")).expect("it is named");
    admin(kind, &url, &routine.expect("there is one")).await;
    let address = url.split('?').next().expect("an address");
    let mut connection = MySqlConnection::connect(address).await.expect("a connection");
    let call = call(kind, &guard).replace("called", table);
    sqlx::raw_sql("XA START 'routine'").execute(&mut connection).await.expect("it begins");
    let refused = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut connection).await.expect_err("refused");
    assert!(refused.to_string().contains("XA transaction"), "{refused}");
    sqlx::raw_sql("XA END 'routine'; XA ROLLBACK 'routine'").execute(&mut connection).await.expect("it ends");
}
