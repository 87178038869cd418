//! What a new connection is set to. Nothing is left as the server, the account or `init_connect` may have it.

use std::time::Duration;

use futures_util::StreamExt;
use sqlx_core::Either;
use sqlx_core::connection::Connection;
use sqlx_core::row::Row;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::{MySqlConnectOptions, MySqlConnection};

use crate::dialect::answers::mysql::number;
use crate::dialect::error::misconfigured;
use crate::sql::login::Login;

/// The modes are set as a whole: those that a server has by default may change what a statement means
/// (`SIMULTANEOUS_ASSIGNMENT`, `HIGH_NOT_PRECEDENCE`, `PAD_CHAR_TO_FULL_LENGTH`). A metadata lock, which an
/// `ALTER TABLE` or a dump holds, is waited for no longer than a row: the server says that a statement waits
/// before the client gives its connection up. What stands behind `!50708` is for MySQL alone, behind `M!` for MariaDB alone.
const SETTINGS: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',
    autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, unique_checks = 1,
    group_concat_max_len = 1000000 /*!50708 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */";

/// How long a statement waits for a table: `lock_wait_timeout` of the settings.
pub(super) const TABLE_TIMEOUT: &str = "1s";

/// In one message, since each way to the server and back delays whoever connects. It ends with a question:
/// `SYSDATE` goes on while a statement runs, unless the server makes it the time at which the statement
/// began. The statement counts a little, for some hundred microseconds. It does not sleep: all sleepers of a
/// MariaDB server share one mutex, and a `KILL` that meets one of them can hold that for two seconds.
///
/// `ROLLBACK` comes first: `init_connect` may have begun a transaction. There are no gap locks at this
/// isolation level, and each statement sees what is committed when it begins.
const FIRST: &str = "ROLLBACK; {settings}; SET NAMES utf8mb4 COLLATE utf8mb4_general_ci;
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    SELECT BENCHMARK(10000, CRC32('lockwell')), TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6));
    {snapshot}";

/// Newer versions of MariaDB have it, and it is on by default. A statement that has read a row and then
/// waited for it would fail, although all our statements look at a row again once they have locked it. It
/// comes last: where the server does not know it, all else is done.
const SNAPSHOT: &str = "SET SESSION innodb_snapshot_isolation = 0";

/// How long a kill may take, or a new parked connection.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the end of a connection may take. Nobody waits for the server.
pub(super) const FAREWELL: Duration = Duration::from_millis(200);

/// Ends a connection. The server logs one that just breaks off.
pub(super) async fn close(conn: MySqlConnection) {
    match tokio::time::timeout(FAREWELL, conn.close()).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::debug!(%error, "a connection has broken off"),
        Err(_) => tracing::debug!("a connection breaks off"),
    }
}

/// Warns of an account that could log in without TLS only since the server remembers it.
pub(super) async fn warn_of_logins(conn: &mut MySqlConnection) {
    let account = sqlx_core::raw_sql::raw_sql("SHOW CREATE USER CURRENT_USER()").fetch_one(conn).await;
    match account.and_then(|row| row.try_get_unchecked::<String, _>(0)) {
        // An account without a password has no `AS`.
        Ok(account) if account.contains("'caching_sha2_password' AS") => tracing::warn!(
            "without TLS (feature \"tls\", and no sslmode=disabled) or `mysql-rsa` of sqlx, this account cannot log in after the \
             next start of the server, and its locks are lost then"
        ),
        Ok(_) => (),
        Err(error) => tracing::debug!(%error, "the server does not say how this account logs in"),
    }
}

/// A connection that is ready for our statements.
pub(super) async fn open(login: &Login<MySqlConnectOptions>) -> sqlx_core::Result<MySqlConnection> {
    let mut conn = login.connect().await?;
    let first = FIRST.replace("{settings}", SETTINGS).replace("{snapshot}", SNAPSHOT);
    let mut went_on = None;
    {
        let mut answers = sqlx_core::raw_sql::raw_sql(AssertSqlSafe(first)).fetch_many(&mut conn);
        while let Some(answer) = answers.next().await {
            match answer {
                // Unchecked, since the text protocol has its own types.
                Ok(Either::Right(row)) => went_on = Some(row.try_get_unchecked::<i64, _>(1)?),
                Ok(Either::Left(_)) => {}
                // This server does not know the variable. Before the question, it would be one that we need.
                Err(sqlx_core::Error::Database(error)) if went_on.is_some() && number(&*error) == 1193 => {}
                Err(error) => return Err(error),
            }
        }
    }
    if went_on.ok_or(sqlx_core::Error::RowNotFound)? == 0 {
        let text = "this server was started with sysdate-is-now, so its clock stands still while a statement waits, and \
                    leases would end too early or too late: start it without";
        return Err(misconfigured(text));
    }
    Ok(conn)
}
