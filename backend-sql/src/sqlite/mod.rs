//! SQLite: the embedded default. Several processes on one file of one host are a real use.

mod boot;
mod bounds;
mod busy;
mod connection;
mod database;
mod descriptors;
mod driver;
mod durability;
mod examine;
mod files;
mod filesystem;
mod forked;
mod groups;
mod locks;
mod plan;
mod records;
#[cfg(unix)]
mod sockets;
#[cfg(not(unix))]
#[path = "no_sockets.rs"]
mod sockets;
mod statements;
mod take;
#[cfg(test)]
mod tests;
mod tickets;
mod version;
mod wake;
#[cfg(unix)]
mod wake_folder;
mod watch;
mod write;
mod write_back;

use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockwell_core::{Error, ErrorKind, Result, ServerUrl};
use sqlx_core::connection::ConnectOptions;
use sqlx_core::connection::Connection as _;
use sqlx_sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

pub(crate) use self::statements::ddl;

use self::connection::{Opening, admitted};
use self::descriptors::Finding;
use self::driver::Sqlite;
use self::durability::Durability;
use self::statements::{Statements, invalid, plain_table};
use crate::dialect::hints::Hints;
use crate::dialect::verify::{VerifyRecord, Written, verify_trait};
use crate::lock::SqlLock;
use crate::sql::options::SqlOptions;
use crate::sql::table::Table;

verify_trait!(SqliteVerify, sqlx_sqlite::Sqlite, "sqlite", "SQLite");

const WRITTEN: Written = Written { mark: '?', name: ["CAST(x'", "' AS TEXT)"], owner: ["x'", "'"] };

/// Locks in an SQLite file.
pub type SqliteLock = SqlLock<Sqlite>;

impl SqliteLock {
    /// Opens the file of this address, `sqlite://FILE`, and creates it if it is missing.
    ///
    /// Options: `table`, `create`, `timeout`, `purge_after` as for all databases, and `busy_timeout`: how
    /// long to wait for another process that is writing. `any_filesystem=true` takes a file on a network file
    /// system, which is otherwise refused. `durability=disk` syncs each grant to the disk; otherwise that is
    /// done only on systems where a crash of the host may leave holders (`docs/sql.md`, "Durability").
    ///
    /// Locks have a file of their own: nothing else in the process opens it, apart from connections by the
    /// same copy of SQLite. It has one name: no hard link, and no mount of the file alone.
    ///
    /// # Errors
    /// [`Misconfigured`](lockwell_core::ErrorKind::Misconfigured) if that is not so, here or later.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is locked.
    pub async fn connect(url: &ServerUrl) -> Result<Self> {
        let options = SqlOptions::read(url, &["any_filesystem", "busy_timeout", "durability"])?;
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
        let dialect = Sqlite::on(url, &options, &table, file)?;
        let record = Arc::new(VerifyRecord {
            backend: "sqlite",
            verify: dialect.sql.verify.clone(),
            written: WRITTEN,
        });
        Self::open(dialect, options, record, tickets::acquire).await
    }
}

impl Sqlite {
    /// The driver for a file, by the options of its address.
    fn on(url: &ServerUrl, options: &SqlOptions, table: &Table, file: PathBuf) -> Result<Self> {
        let durability = Arc::new(Durability::of(url, &file)?);
        let busy_timeout = url.duration("busy_timeout")?.unwrap_or(options.timeout / 2);
        let connect = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(options.create)
            .journal_mode(SqliteJournalMode::Wal)
            // Each commit sets the mode that it needs.
            .synchronous(SqliteSynchronous::Full)
            // A checkpoint syncs three times, and a commit without a sync must not wait for one often.
            .pragma("wal_autocheckpoint", "16000")
            // What a hand-over answers is in a temporary table.
            .pragma("temp_store", "MEMORY")
            .busy_timeout(busy_timeout)
            // Whoever knows an owner can release its lock.
            .disable_statement_logging();
        let opening = Opening {
            patience: busy_timeout,
            connect,
            any_filesystem: url.parsed("any_filesystem", "true or false")?.unwrap_or(false),
            known: AtomicBool::new(false),
            durability,
            finding: Finding::default(),
        };
        Ok(Self {
            opening,
            create: options.create,
            sql: Statements::new(table, &statements::FILES),
            hints: Hints::new(),
            sends_in_vain: AtomicBool::new(false),
        })
    }
}

/// Refuses a database without lock tables if they must not be created. Opening a database for locks switches
/// it to a write-ahead log, and that must not happen to a file of another program, or to an empty one.
async fn refuse_without_tables(file: &Path, table: &Table) -> Result<()> {
    let look = async {
        let _counted = admitted(file).await?;
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(false).read_only(true);
        let mut conn = options.disable_statement_logging().connect().await?;
        let found = sqlx_core::query_scalar::query_scalar::<_, i64>(
            "SELECT count(*) FROM sqlite_master WHERE name = ?1 COLLATE NOCASE",
        )
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
