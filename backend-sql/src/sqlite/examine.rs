//! The questions of an administrator to an SQLite file.

use std::path::Path;

use lockcore::{Error, ErrorKind, Finding, Result};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection as _};

use super::connection::Connection;
use super::statements::Statements;
use super::{Sqlite, filesystem, plain_table};
use crate::dialect::examine::Examine;
use crate::sql::table::{Sql, Table};

impl Examine for Sqlite {
    async fn names(&self, conn: &mut Connection) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.names.get()).fetch_all(conn.get()).await
    }

    async fn examine(&self, conn: &mut Connection) -> sqlx::Result<Vec<Finding>> {
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(conn.get()).await?;
        let journal = if mode.eq_ignore_ascii_case("wal") {
            Finding::good("persistence", "grants are synced to the disk before they are answered")
        } else {
            let remedy = "close all programs that use the file, and let lockwell open it first";
            Finding::doubtful(
                "persistence",
                format!("journal_mode is {mode}, not wal: locks are slow"),
                remedy,
            )
        };
        Ok(vec![filesystem::finding(self.opening.connect.get_filename()), journal])
    }
}

/// Refuses a database without lock tables if they must not be created. Opening a database for locks switches it to a
/// write-ahead log, and that must not happen to a file of another program, or to an empty one.
pub(super) async fn refuse_without_tables(file: &Path, table: &Table) -> Result<()> {
    let look = async {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(false).read_only(true);
        let mut conn = options.disable_statement_logging().connect().await?;
        let found =
            sqlx::query_scalar::<_, i64>("SELECT count(*) FROM sqlite_master WHERE name = ?1 COLLATE NOCASE")
                .bind(table.base())
                .fetch_one(&mut conn)
                .await;
        conn.close().await?;
        found
    };
    match look.await {
        Ok(0) => {
            let text = format!(
                "the file {} has no table {:?}, and create=false forbids to make it: run what `lockwell schema` prints (create_schema())",
                file.display(),
                table.base()
            );
            Err(Error::new(ErrorKind::Misconfigured, text).on_backend("sqlite"))
        }
        // Opening the file for locks reports what is wrong with it.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The statements that create the tables.
pub(crate) fn ddl(table: &Table) -> Result<String> {
    Ok(Sql::script(Statements::new(&plain_table(table)?).tables()))
}
