//! The check of a lock as a statement, sent by clients of other makers.

use std::time::Duration;

use lockwell_core::ErrorKind;
use lockwell_sql::VerifyStatement;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

use crate::servers::{Kind, admin, client, url};

/// `begin` sends a statement in a new transaction, and says how many rows it has found; `commit` ends that.
async fn is_checked<T>(
    kind: Kind,
    table: &str,
    begin: impl AsyncFn(String, String) -> (usize, T),
    commit: impl AsyncFn(T),
) {
    let Some(url) = url(kind, table).await else { return };
    let (locks, thief) = (client(kind, &url).await, client(kind, &url).await);
    let address = || url.split('?').next().expect("an address").to_owned();

    // The token of the next holder is the same, as after a failover that has lost grants.
    let name = "that's 1 :name, $1 or ?1: 100%s\\";
    let guard = locks.lock(name).await.expect("a free lock");
    assert_eq!(thief.force_release(name).await.expect("an answer"), 1);
    let thieving = thief.lock(name).await.expect("a freed lock");
    admin(kind, &url, &format!("UPDATE {table} SET token = {}", guard.token())).await;
    let (rows, transaction) = begin(address(), guard.verify_statement().expect("a text")).await;
    assert_eq!(rows, 0, "{kind:?}: another one holds it");
    commit(transaction).await;
    drop((guard, thieving));

    for shared in [false, true] {
        let name = if shared { "that's read" } else { "that's written" };
        let request = if shared { locks.read(name) } else { locks.write(name) };
        let guard = request.ttl(Duration::from_mins(1)).await.expect("a free lock");
        let (rows, transaction) = begin(address(), guard.verify_statement().expect("a text")).await;
        assert_eq!(rows, 1, "{kind:?}: it is held");
        let next = tokio::spawn({
            let thief = thief.clone();
            async move {
                while thief.force_release(name).await.is_err() {}
                thief.write(name).await
            }
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(!next.is_finished(), "{kind:?}: the lock changed hands under an open transaction");
        commit(transaction).await;
        let next = tokio::time::timeout(Duration::from_secs(30), next).await.expect("after the commit");
        next.expect("no panic").expect("a freed lock").release().await.expect("held");
        let (rows, transaction) = begin(address(), guard.verify_statement().expect("a text")).await;
        assert_eq!(rows, 0, "{kind:?}: it was lost");
        commit(transaction).await;
    }
}

macro_rules! as_text {
    ($test:ident, $kind:expr, $connection:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let begin = async |address: String, text: String| {
                let mut connection = <$connection>::connect(&address).await.expect("a connection");
                sqlx::raw_sql("BEGIN").execute(&mut connection).await.expect("a transaction");
                let rows = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&mut connection).await;
                (rows.expect("an answer").len(), connection)
            };
            is_checked($kind, stringify!($test), begin, async |mut connection| {
                sqlx::raw_sql("COMMIT").execute(&mut connection).await.expect("committed");
            })
            .await;
        }
    };
}

as_text!(by_text_on_postgres, Kind::Postgres, PgConnection);
as_text!(by_text_on_mariadb, Kind::MariaDb, MySqlConnection);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_tokio_postgres() {
    let begin = async |address: String, text: String| {
        let (client, connection) =
            tokio_postgres::connect(&address, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.expect("a transaction");
        let row = client.query_opt(&text, &[]).await.expect("an answer");
        (usize::from(row.is_some()), client)
    };
    is_checked(Kind::Postgres, "by_tokio_postgres", begin, async |client| {
        client.batch_execute("COMMIT").await.expect("committed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_diesel() {
    use diesel::connection::{SimpleConnection as _, TransactionManager as _};
    use diesel::{Connection as _, RunQueryDsl as _, SqliteConnection, sql_query};

    #[derive(diesel::QueryableByName)]
    struct Held {
        #[diesel(sql_type = diesel::sql_types::Integer)]
        one: i32,
    }

    type Transactions = <SqliteConnection as diesel::Connection>::TransactionManager;
    let begin = async |address: String, text: String| {
        let file = address.strip_prefix("sqlite://").expect("a file");
        let mut connection = SqliteConnection::establish(file).expect("a connection");
        // Others write to the file as well.
        connection.batch_execute("PRAGMA busy_timeout = 30000").expect("a setting");
        Transactions::begin_transaction(&mut connection).expect("a transaction");
        let held: Vec<Held> = sql_query(text).load(&mut connection).expect("an answer");
        assert!(held.iter().all(|held| held.one == 1));
        (held.len(), connection)
    };
    is_checked(Kind::Sqlite, "by_diesel", begin, async |mut connection| {
        Transactions::commit_transaction(&mut connection).expect("committed");
    })
    .await;
}

/// A lock that is in no SQL database has no such statement.
#[tokio::test]
async fn a_lock_elsewhere_is_refused() {
    let guard = lockwell_core::Locks::in_memory().lock("a").await.expect("a free lock");
    let error = guard.verify_statement().expect_err("no database");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
}
