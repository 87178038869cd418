//! The floor of SQLite: a file of its own beside the backend's, with the same journal settings: no commit
//! waits for the disk.

use std::path::PathBuf;

use lockwell::backend::{ServerUrl, async_trait};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, Row};

use crate::error::Result;
use crate::measure::floor::raw::{Owners, Raw, Server, TTL, key, refused};

const CREATE: &str = "CREATE TABLE lockwell_compare_floor (
    name TEXT COLLATE BINARY PRIMARY KEY NOT NULL, owner BLOB NOT NULL, token INTEGER NOT NULL,
    expires_at INTEGER, acquired_at INTEGER NOT NULL, label TEXT NOT NULL
) WITHOUT ROWID";

const TAKE: &str =
    "INSERT INTO lockwell_compare_floor AS l (name, owner, token, expires_at, acquired_at, label)
    VALUES (?1, ?2, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3,
        CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?4)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1,
        expires_at = excluded.expires_at, acquired_at = excluded.acquired_at, label = excluded.label
    WHERE l.expires_at IS NULL OR l.expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    RETURNING token";

const CLEAR: &str = "UPDATE lockwell_compare_floor SET expires_at = NULL WHERE name = ?1 AND owner = ?2";

#[derive(Debug)]
pub(crate) struct SqliteFloor {
    connection: SqliteConnection,
    owners: Owners,
    file: PathBuf,
    /// The files of `flock`, which is measured beside this backend. Its processes share them, so they are
    /// removed here.
    flock: PathBuf,
}

impl SqliteFloor {
    pub(super) async fn connect(url: &ServerUrl) -> Result<Self> {
        let file = PathBuf::from(format!("{}.floor-{}", url.location(), std::process::id()));
        let mut connection = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("wal_autocheckpoint", "16000")
            .connect()
            .await?;
        connection.execute(CREATE).await?;
        let flock = PathBuf::from(format!("{}.flock", url.location()));
        Ok(Self { connection, owners: Owners::default(), file, flock })
    }

    async fn text(&mut self, sql: &'static str) -> Result<String> {
        Ok(sqlx::query(sql).fetch_one(&mut self.connection).await?.try_get(0)?)
    }
}

#[async_trait]
impl Raw for SqliteFloor {
    fn what(&self) -> &'static str {
        "INSERT .. ON CONFLICT .. RETURNING, then UPDATE; one bare sqlx connection"
    }

    async fn cycle(&mut self, name: usize) -> Result<()> {
        let (name, owner) = (key(name), self.owners.next());
        let taken = sqlx::query(TAKE)
            .bind(&name)
            .bind(owner)
            .bind(TTL)
            .bind("compare-bench")
            .fetch_optional(&mut self.connection)
            .await?;
        let _: i64 = taken.ok_or_else(refused)?.try_get(0)?;
        let cleared = sqlx::query(CLEAR).bind(&name).bind(owner).execute(&mut self.connection).await?;
        if cleared.rows_affected() == 1 { Ok(()) } else { Err(refused()) }
    }

    async fn server(&mut self) -> Result<Server> {
        let version: String = self.text("SELECT sqlite_version()").await?;
        let journal = self.text("SELECT journal_mode FROM pragma_journal_mode").await?;
        let synchronous = self.text("SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous").await?;
        Ok(Server {
            version: format!("SQLite {version}"),
            settings: vec![("journal_mode", journal), ("synchronous", synchronous)],
        })
    }

    async fn finish(self: Box<Self>) -> Result<()> {
        self.connection.close().await?;
        match std::fs::remove_dir_all(&self.flock) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        // The last connection to close takes the journal along.
        Ok(std::fs::remove_file(&self.file)?)
    }
}
