//! The connections and tables of SQLite.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lockcore::{Capabilities, Requirement};
use uuid::Uuid;

use super::connection::Connection;
use super::driver::Sqlite;
use crate::dialect::database::Database;
use crate::sql::table::Sql;
use crate::words::{ErrorClass, Notification};

impl Database for Sqlite {
    const IS_REMOTE: bool = false;

    type Conn = Connection;
    type Subscription = ();

    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("sqlite").promising([
            Requirement::Shared,
            Requirement::Permits,
            Requirement::Downgrade,
            Requirement::Fencing,
            Requirement::TokenBlocks,
            Requirement::Fifo,
            Requirement::HerdFree,
            Requirement::Durable,
            Requirement::FailoverSafe,
        ])
    }

    /// The files are closed when this returns.
    async fn shut(&self, conn: Connection) {
        conn.close().await;
    }

    async fn connect(&self) -> sqlx::Result<Connection> {
        let is_first = !self.opening.known.load(Ordering::Relaxed);
        let mut conn = Connection::open(&self.opening).await?;
        // The first connection reports what is wrong with the tables. A later one that finds none has a new
        // file: one that replaced the old file, or that was created just now.
        if self.create && !is_first && self.check(&mut conn).await.is_err_and(|error| is_empty(&error)) {
            self.create(&mut conn).await?;
        }
        Ok(conn)
    }

    fn intact(&self, conn: &Connection) -> sqlx::Result<()> {
        conn.check()
    }

    fn class_of(&self, error: &dyn sqlx::error::DatabaseError) -> ErrorClass {
        // Extended codes have the primary code in their low byte: 5 is BUSY, 6 is LOCKED.
        let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default();
        match code & 0xff {
            5 | 6 => ErrorClass::Again,
            // 1032: SQLite itself has noticed that the file was moved.
            _ if code == 1032 => ErrorClass::Broken,
            10 => ErrorClass::Broken,
            _ => ErrorClass::Fatal,
        }
    }

    async fn check(&self, conn: &mut Connection) -> sqlx::Result<()> {
        let conn = conn.get();
        for check in self.sql.checks() {
            sqlx::query(check.get()).fetch_optional(&mut *conn).await?;
        }
        Ok(())
    }

    async fn create(&self, conn: &mut Connection) -> sqlx::Result<()> {
        // The mode is that of the last write. The first grant syncs the tables at the latest.
        let conn = conn.get();
        for statement in self.sql.tables() {
            sqlx::query(statement.get()).execute(&mut *conn).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(self.sql.tables())
    }

    async fn version(&self, conn: &mut Connection) -> sqlx::Result<Option<i64>> {
        conn.version().await
    }

    async fn pause(&self, conn: &mut Connection, pause: Duration) -> sqlx::Result<()> {
        conn.pause(pause).await
    }

    async fn subscribe(&self, _: Uuid) -> sqlx::Result<Option<()>> {
        Ok(None)
    }

    async fn notification((): &mut ()) -> sqlx::Result<Option<Notification>> {
        std::future::pending().await
    }
}

/// Whether the tables are missing.
fn is_empty(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.message().contains("no such table"))
}
