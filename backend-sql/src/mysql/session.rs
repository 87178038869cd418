//! What a new connection is set to. Nothing is left as the server, the account or `init_connect` may have it.

use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{ConnectOptions, Row};

use crate::error::misconfigured;

/// The modes are set as a whole: those that a server has by default may change what a statement means
/// (`SIMULTANEOUS_ASSIGNMENT`, `HIGH_NOT_PRECEDENCE`, `PAD_CHAR_TO_FULL_LENGTH`). A metadata lock, which an `ALTER
/// TABLE` holds, is waited for longer than a row, since it is rarer and takes longer. What stands behind `!50708` is for
/// MySQL alone, behind `M!` for MariaDB alone.
const SETTINGS: &str = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',
    autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 1, lock_wait_timeout = 3, sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0, unique_checks = 1,
    group_concat_max_len = 1000000 /*!50708 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */";

/// In the order in which they are sent.
const EACH: [&str; 4] = [
    // `init_connect` may have begun a transaction.
    "ROLLBACK",
    SETTINGS,
    "SET NAMES utf8mb4 COLLATE utf8mb4_general_ci",
    // Without gap locks. Each statement sees what is committed when it begins.
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
];

/// Newer versions of MariaDB have it, and it is on by default. A statement that has read a row and then waited for it
/// would fail, although all our statements look at a row again once they have locked it.
const SNAPSHOT: &str = "SET SESSION innodb_snapshot_isolation = 0";

/// `SYSDATE` goes on while `SLEEP` sleeps, unless the server makes it the time at which the statement began.
const GOES_ON: &str = "SELECT SLEEP(0.001), TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))";

/// A connection that is ready for our statements.
pub(super) async fn open(options: &MySqlConnectOptions) -> sqlx::Result<MySqlConnection> {
    let mut conn = options.connect().await?;
    for statement in EACH {
        sqlx::raw_sql(statement).execute(&mut conn).await?;
    }
    match sqlx::raw_sql(SNAPSHOT).execute(&mut conn).await {
        // This server does not know the variable.
        Err(sqlx::Error::Database(error)) if super::number(&*error) == 1193 => {}
        other => {
            other?;
        }
    }
    let row = sqlx::raw_sql(GOES_ON).fetch_one(&mut conn).await?;
    // Unchecked, since the text protocol has its own types.
    let went_on: i64 = row.try_get_unchecked(1)?;
    if went_on == 0 {
        let text = "this server was started with sysdate-is-now, so its clock stands still while a statement waits, and \
                    leases would end too early or too late: start it without";
        return Err(misconfigured(text));
    }
    Ok(conn)
}
