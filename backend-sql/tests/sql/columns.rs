//! Tokens and ids of holds as columns of the application's own tables.

use lockwell_core::{FencingToken, HoldId, Locks};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, SqliteConnection};

use crate::servers::{Kind, url};

macro_rules! columns_test {
    ($test:ident, $kind:expr, $connection:ty, $marks:expr) => {
        #[tokio::test]
        async fn $test() {
            let Some(url) = url($kind, "columns").await else { return };
            let address = url.split('?').next().expect("an address");
            let address = if $kind == Kind::Sqlite { "sqlite::memory:" } else { address };
            let mut connection = <$connection>::connect(address).await.expect("a connection");
            let create = "CREATE TABLE fences (fence BIGINT NOT NULL, hold CHAR(32) NOT NULL)";
            sqlx::query(create).execute(&mut connection).await.expect("a table");

            let guard = Locks::in_memory().lock("a").await.expect("a free lock");
            let written = (guard.token(), guard.hold_id());
            let insert = AssertSqlSafe(format!("INSERT INTO fences VALUES ({})", $marks));
            let inserted = sqlx::query(insert).bind(written.0).bind(written.1).execute(&mut connection);
            assert_eq!(inserted.await.expect("inserted").rows_affected(), 1);
            let read = sqlx::query_as::<_, (FencingToken, HoldId)>("SELECT fence, hold FROM fences");
            assert_eq!(read.fetch_one(&mut connection).await.expect("a row"), written);
            // What a database compares is the number.
            let read = sqlx::query_scalar::<_, i64>("SELECT fence FROM fences");
            let number = read.fetch_one(&mut connection).await.expect("a number");
            assert_eq!(FencingToken::try_from(number), Ok(written.0));

            let insert = AssertSqlSafe(format!("INSERT INTO fences VALUES ({})", $marks));
            let too_high = FencingToken::new(u64::MAX);
            let inserted = sqlx::query(insert).bind(too_high).bind(written.1).execute(&mut connection);
            inserted.await.expect_err("no column is large enough");
            sqlx::query("UPDATE fences SET hold = 'mine', fence = -1")
                .execute(&mut connection)
                .await
                .expect("changed");
            for column in ["fence", "hold"] {
                let select = AssertSqlSafe(format!("SELECT {column} FROM fences"));
                let read: sqlx::Result<()> = match column {
                    "fence" => sqlx::query_scalar::<_, FencingToken>(select)
                        .fetch_one(&mut connection)
                        .await
                        .map(drop),
                    _ => sqlx::query_scalar::<_, HoldId>(select).fetch_one(&mut connection).await.map(drop),
                };
                read.expect_err("what nobody has written so");
            }
            sqlx::query("DROP TABLE fences").execute(&mut connection).await.expect("dropped");
        }
    };
}

columns_test!(sqlite_has_columns_for_tokens, Kind::Sqlite, SqliteConnection, "?, ?");
columns_test!(postgres_has_columns_for_tokens, Kind::Postgres, PgConnection, "$1, $2");
columns_test!(mariadb_has_columns_for_tokens, Kind::MariaDb, MySqlConnection, "?, ?");
