//! SQLite: the embedded default. Several processes on one file of one host are a real use.

mod connection;
mod database;
mod driver;
mod examine;
mod files;
mod filesystem;
mod forked;
mod groups;
mod locks;
mod statements;
mod watch;
mod write;

use std::path::absolute;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockcore::backend::Hot;
use lockcore::{Result, ServerUrl};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

pub(crate) use self::statements::ddl;

use self::connection::{Opening, refuse_without_tables};
use self::driver::Sqlite;
use self::statements::{Statements, invalid, plain_table};
use crate::dialect::verify::{VerifyRecord, verify_trait};
use crate::lock::SqlLock;
use crate::sql::options::SqlOptions;

verify_trait!(SqliteVerify, sqlx::Sqlite, "sqlite", "SQLite");

/// Locks in an SQLite file.
pub type SqliteLock = SqlLock<Sqlite>;

impl SqliteLock {
    /// Opens the file of this address, `sqlite://FILE`, and creates it if it is missing.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases, and `busy_timeout`: how
    /// long to wait for another process that is writing. `any_filesystem=true` takes a file on a network file
    /// system, which is otherwise refused.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = SqlOptions::read(url, &["any_filesystem", "busy_timeout"])?;
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
        // The name must mean the same file when it is opened again, wherever the process has gone meanwhile.
        // It does not begin with "file:" either, which SQLite takes for an address.
        let file = absolute(file)
            .map_err(|error| invalid("the path of the file is not usable").with_source(error))?;
        if !options.create {
            refuse_without_tables(&file, &table).await?;
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
        let record = Arc::new(VerifyRecord { backend: "sqlite", verify: sql.verify.clone() });
        Self::open(Sqlite { opening, create: options.create, sql, hot: Hot::new() }, options, record).await
    }
}
