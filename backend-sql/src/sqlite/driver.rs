//! The driver for SQLite.

use std::fmt;

use lockcore::backend::Hot;
use sqlx::sqlite::SqliteConnection;

use super::connection::Opening;
use super::statements::Statements;
use crate::dialect::error::ended;

/// The SQLite dialect.
pub struct Sqlite {
    pub(super) opening: Opening,
    /// Whether missing tables are created.
    pub(super) create: bool,
    pub(super) sql: Statements,
    /// The locks that were found held lately. This only decides which statement is tried first.
    pub(super) hot: Hot,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sqlite").field(&self.opening.connect.get_filename()).finish()
    }
}

/// Whether the transaction has already ended.
fn is_over(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.message().contains("no transaction is active")
}

pub(super) async fn end<T>(conn: &mut SqliteConnection, outcome: sqlx::Result<T>) -> sqlx::Result<T> {
    let word = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    match sqlx::raw_sql(word).execute(conn).await {
        // SQLite has rolled back by itself, as it does when the disk is full.
        Err(sqlx::Error::Database(error)) if outcome.is_err() && is_over(&*error) => outcome,
        ending => ended(outcome, ending.map(drop)),
    }
}

pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}
