//! SQLite: the embedded default. Several processes on one file of one host are a real use.

mod connection;
mod examine;
mod files;
mod filesystem;
mod forked;
mod groups;
mod locks;
mod statements;
mod watch;
mod write;

use std::fmt;
use std::path::absolute;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockcore::backend::Hot;
use lockcore::{Capabilities, Error, ErrorKind, Requirement, Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use uuid::Uuid;

pub(crate) use self::examine::ddl;

use self::connection::{Connection, Opening};
use self::statements::Statements;
use crate::dialect::database::{Database, ErrorClass};
use crate::dialect::Notification;
use crate::dialect::error::ended;
use crate::lock::SqlLock;
use crate::sql::options::Options;
use crate::sql::table::{Sql, Table};
use crate::dialect::verify::{Record, verify_trait};

verify_trait!(SqliteVerify, sqlx::Sqlite, "sqlite", "SQLite");

/// Locks in an SQLite file.
pub type SqliteLock = SqlLock<Sqlite>;

/// The SQLite dialect.
pub struct Sqlite {
    opening: Opening,
    /// Whether missing tables are created.
    create: bool,
    sql: Statements,
    /// The locks that were found held lately. This only decides which statement is tried first.
    hot: Hot,
}

impl SqliteLock {
    /// Opens the file of this address, `sqlite://FILE`, and creates it if it is missing.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases, and `busy_timeout`: how long to wait
    /// for another process that is writing. `any_filesystem=true` takes a file on a network file system, which is
    /// otherwise refused.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = Options::read(url, &["any_filesystem", "busy_timeout"])?;
        let file = url.location();
        let complaint = match file.as_str() {
            "" => {
                Some("the address names no file: write sqlite://locks.db or sqlite:///var/lib/app/locks.db")
            }
            ":memory:" => Some("a database in memory has one connection only: use memory:// instead"),
            // The system would refuse it, and SQLite would make another file of it.
            file if file.ends_with('/') => {
                Some("the path names a folder, not a file: write it without the / at its end")
            }
            _ if url.user().is_some() || url.password().is_some() => {
                Some("a file has no user and no password")
            }
            _ => None,
        };
        if let Some(complaint) = complaint {
            return Err(invalid(complaint));
        }
        let table = plain_table(&options.table)?;
        // The name must mean the same file when it is opened again, wherever the process has gone meanwhile. It does not
        // begin with "file:" either, which SQLite takes for an address.
        let file = absolute(file)
            .map_err(|error| invalid("the path of the file is not usable").with_source(error))?;
        if !options.create {
            examine::refuse_without_tables(&file, &table).await?;
        }
        let connect = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(options.create)
            .journal_mode(SqliteJournalMode::Wal)
            // The last grants must not be lost in a power failure: tokens would repeat. See `Commits`.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(url.duration("busy_timeout")?.unwrap_or(options.timeout / 2))
            // Whoever knows an owner can release its lock.
            .disable_statement_logging();
        let opening = Opening {
            connect,
            any_filesystem: url.parsed("any_filesystem", "true or false")?.unwrap_or(false),
            known: AtomicBool::new(false),
        };
        let sql = Statements::new(&table);
        let record = Arc::new(Record { backend: "sqlite", verify: sql.verify.clone() });
        Self::open(Sqlite { opening, create: options.create, sql, hot: Hot::new() }, options, record).await
    }
}

fn invalid(complaint: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, complaint).on_backend("sqlite")
}

/// The table without its schema, quoted, since its name may be a word of SQL. A temporary table would be another one for
/// each connection.
fn plain_table(table: &Table) -> Result<Table> {
    let whole = table.to_string();
    let schema = whole.strip_suffix(table.base()).unwrap_or_default();
    if !schema.is_empty() && !schema.eq_ignore_ascii_case("main.") {
        return Err(invalid("table: an SQLite file has no schema but `main`"));
    }
    if table.base().to_ascii_lowercase().starts_with("sqlite_") {
        return Err(invalid("table: SQLite keeps names that begin with `sqlite_` for itself"));
    }
    Ok(Table::new(table.base())?.quoted("\""))
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

async fn end<T>(conn: &mut SqliteConnection, outcome: sqlx::Result<T>) -> sqlx::Result<T> {
    let word = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    match sqlx::raw_sql(word).execute(conn).await {
        // SQLite has rolled back by itself, as it does when the disk is full.
        Err(sqlx::Error::Database(error)) if outcome.is_err() && is_over(&*error) => outcome,
        ending => ended(outcome, ending.map(drop)),
    }
}

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
        // The first connection reports what is wrong with the tables. A later one that finds none has a new file: one that
        // replaced the old file, or that was created just now.
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

fn json<T: serde::Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}
