//! One connection to a database file, and its state.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockcore::{Error, ErrorKind};
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _};

use super::files::Files;
use super::filesystem;
use super::forked::Counted;
use super::watch::{Watch, version};
use super::write::{self, Commits, Done, Write};
use crate::client::idle;
use crate::dialect::error::{misconfigured, refused};
use crate::sql::table::Table;

const REFUSED: &str = "this user may not open the database file, or may not use its folder";

/// How often a file that is replaced while it is being opened is opened again.
const ATTEMPTS: u32 = 5;

/// How a file is opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) connect: SqliteConnectOptions,
    /// Whether any file system is allowed.
    pub(super) any_filesystem: bool,
    /// Whether it has been opened before.
    pub(super) known: AtomicBool,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    sqlite: SqliteConnection,
    files: Files,
    watch: Watching,
    /// How its commits reach the disk. `None`: the mode is being changed.
    commits: Option<Commits>,
    /// Whether the file system writes to a disk.
    is_flushed: bool,
    // After the connection: it is counted until it is closed.
    _counted: Counted,
}

/// Whether the log is watched.
#[derive(Debug)]
enum Watching {
    /// Nobody has waited on this connection yet.
    NotYet,
    Yes(Box<Watch>),
    No,
}

impl Connection {
    pub(super) async fn open(opening: &Opening) -> sqlx::Result<Self> {
        let path: PathBuf = opening.connect.get_filename().to_owned();
        if let Some(why) = (!opening.any_filesystem).then(|| filesystem::refusal(&path)).flatten() {
            return Err(misconfigured(why));
        }
        let counted = Counted::new().map_err(misconfigured)?;
        for attempt in 1..=ATTEMPTS {
            let before = Files::before(&path);
            let sqlite = match connect(&opening.connect).await {
                Err(error) => {
                    idle::close_lost();
                    // If the file existed before, it is probably being replaced at this moment. A new log
                    // does not match removed memory.
                    let is_known = opening.known.load(Ordering::Relaxed);
                    let is_between = is_known && (is_missing(&error) || Files::are_lost(&path));
                    if is_between {
                        return Err(sqlx::Error::Io(std::io::Error::other(error)));
                    }
                    let is_refused = is_missing(&error) && filesystem::is_forbidden(&path);
                    return Err(if is_refused { refused(REFUSED) } else { error });
                }
                Ok(sqlite) => sqlite,
            };
            if let Some(files) = Files::of(&path, before) {
                opening.known.store(true, Ordering::Relaxed);
                let is_flushed = !filesystem::is_in_memory(&path);
                let commits = Some(Commits::Synced);
                let watch = Watching::NotYet;
                return Ok(Self { sqlite, files, watch, commits, is_flushed, _counted: counted });
            }
            // This is normal once, for a file that was created by opening it.
            sqlite.close().await?;
            if attempt > 2 {
                // An idle connection of ours may be what holds a removed log.
                idle::close_lost();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Err(sqlx::Error::Io(std::io::Error::other(
            "the database file or one of those beside it (-wal, -shm) is being replaced; if they were removed while this \
             process had them open, all its connections to them must be closed first",
        )))
    }

    pub(super) async fn close(self) {
        let Self { sqlite, _counted: counted, .. } = self;
        if let Err(error) = sqlite.close().await {
            tracing::debug!(%error, "a connection has not ended in good order");
        }
        drop(counted);
    }

    /// The connection for statements that do not write.
    pub(super) fn get(&mut self) -> &mut SqliteConnection {
        &mut self.sqlite
    }

    /// Runs a statement that writes, alone or in a transaction. A change of the mode is sent in the same
    /// message, since each message to the thread of the connection costs as much as a short statement.
    pub(super) async fn write<'q, const SYNCED: bool>(
        &mut self,
        sql: &Write<SYNCED>,
        bind: impl FnOnce(Query<'q, sqlx::Sqlite, SqliteArguments>) -> Query<'q, sqlx::Sqlite, SqliteArguments>,
    ) -> sqlx::Result<Done> {
        let switches = self.switches_to(Write::<SYNCED>::COMMITS);
        let query = bind(sqlx::query(sql.text(switches).get()));
        if !switches {
            return write::run(&mut self.sqlite, query, 1).await;
        }
        // If the statement fails, the mode is unknown.
        self.commits = None;
        let done = write::run(&mut self.sqlite, query, 2).await?;
        self.commits = Some(Write::<SYNCED>::COMMITS);
        Ok(done)
    }

    /// Begins a transaction of several statements. It is a writer from its start, so it cannot fail later
    /// because of an old snapshot.
    pub(super) async fn begin(&mut self, commits: Commits) -> sqlx::Result<&mut SqliteConnection> {
        let switches = self.switches_to(commits);
        let pragma = if switches { commits.pragma() } else { "" };
        if switches {
            self.commits = None;
        }
        sqlx::raw_sql(AssertSqlSafe(format!("{pragma}BEGIN IMMEDIATE"))).execute(&mut self.sqlite).await?;
        if switches {
            self.commits = Some(commits);
        }
        Ok(&mut self.sqlite)
    }

    /// Whether the mode has to change. Where an fsync does nothing, the mode stays `Synced`.
    fn switches_to(&self, commits: Commits) -> bool {
        self.commits != Some(if self.is_flushed { commits } else { Commits::Synced })
    }

    /// A number that changes when another connection commits.
    pub(super) async fn version(&mut self) -> sqlx::Result<Option<i64>> {
        version(&mut self.sqlite).await
    }

    /// Waits until the database may have changed: for a write to the log, or for `pause` where it cannot be
    /// watched.
    pub(super) async fn pause(&mut self, pause: Duration) -> sqlx::Result<()> {
        match &mut self.watch {
            Watching::Yes(watch) if watch.works() => {
                // The caller starts with a short pause after each success.
                if pause < Duration::from_millis(2) {
                    watch.note_success();
                }
                watch.change(&mut self.sqlite).await?;
            }
            Watching::Yes(_) => self.watch = not_watched(&"it has failed"),
            Watching::No => tokio::time::sleep(pause).await,
            Watching::NotYet => match Watch::on(self.files.log()) {
                Ok(watch) => {
                    // The name still leads to the log that this connection reads, so the watch is on the
                    // right file.
                    self.check()?;
                    // Earlier writes cause no event, so the caller polls at once.
                    self.watch = Watching::Yes(Box::new(watch));
                }
                Err(error) => self.watch = not_watched(&error),
            },
        }
        Ok(())
    }

    /// Whether this is still the file that everybody else finds under its name.
    pub(super) fn check(&self) -> sqlx::Result<()> {
        self.files.check().map_err(sqlx::Error::Io)
    }
}

/// Logs, once per process, why waiters poll every few milliseconds.
fn not_watched(why: &dyn std::fmt::Display) -> Watching {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(error = %why, "the log of the SQLite file cannot be watched; waiters ask for their turn instead");
    }
    Watching::No
}

async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<SqliteConnection> {
    let mut sqlite = options.connect().await?;
    check_mode(&mut sqlite).await?;
    Ok(sqlite)
}

/// Checks the journal mode. Connecting asks for it, but SQLite does not fail if it is not possible: it
/// answers with another.
async fn check_mode(sqlite: &mut SqliteConnection) -> sqlx::Result<()> {
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(sqlite).await?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(misconfigured(format!(
        "the database cannot be used with a write-ahead log (its journal_mode stays {mode:?}): the file must be on a local \
         file system with shared memory, in a folder where files may be created, and no other program may use it in \
         another mode"
    )))
}

fn is_missing(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.code().is_some_and(|code| code == "14"))
}

/// Refuses a database without lock tables if they must not be created. Opening a database for locks switches
/// it to a write-ahead log, and that must not happen to a file of another program, or to an empty one.
pub(super) async fn refuse_without_tables(file: &Path, table: &Table) -> lockcore::Result<()> {
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

#[cfg(test)]
mod tests {
    use lockcore::ErrorKind;
    use sqlx::sqlite::SqliteJournalMode;

    use super::*;
    use crate::dialect::error::fatal;

    fn opening(connect: SqliteConnectOptions) -> Opening {
        Opening { connect, any_filesystem: false, known: AtomicBool::new(false) }
    }

    /// Locks of this kind have no shared memory, so there is no write-ahead log either, and SQLite does not
    /// say so.
    #[tokio::test]
    async fn without_a_write_ahead_log_the_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let connect = SqliteConnectOptions::new()
            .filename(folder.path().join("locks.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .vfs("unix-dotfile");
        let error = fatal(&Connection::open(&opening(connect)).await.expect_err("it cannot work"));
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("journal_mode"), "{error:#}");
    }

    /// It goes on without a watch where there cannot be one.
    #[tokio::test]
    async fn what_cannot_be_watched_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("locks.db");
        let connect = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let mut conn = Connection::open(&opening(connect)).await.expect("a file");
        std::fs::remove_file(conn.files.log()).expect("a log");
        for _ in 0..3 {
            conn.pause(Duration::from_millis(1)).await.expect("a pause");
            assert!(matches!(conn.watch, Watching::No));
        }
    }
}
