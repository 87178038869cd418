//! One connection to a database file, and what must be known of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _};

use super::files::Files;
use super::filesystem;
use super::watch::{Watch, version};
use crate::error::misconfigured;
use crate::idle;
use crate::table::Sql;

/// How often a file that is replaced while it is being opened is opened again.
const ATTEMPTS: u32 = 5;

/// How a file is opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) connect: SqliteConnectOptions,
    /// Whether to take any file system.
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
    /// How its commits reach the disk. `None`: that is being changed.
    commits: Option<Commits>,
}

/// When a commit is on the disk. In both modes it survives the death of the process.
///
/// `Synced` (`synchronous=FULL`): before anybody sees it, or has an answer. So whatever a grant or a renewal says survives a
/// crash of the host. `Written` (`NORMAL`): with the next commit that is synced, or with the next checkpoint. A release,
/// a place in the queue and a purge need no more: one that is forgotten lets a lease, a place or a row run out.
///
/// A synced commit cannot be lost for the sake of one before it that is only written, although the checksum of each frame
/// in the log covers all frames before it: they are in the same file, and an fsync syncs all of the file that was written
/// before, by this connection or another, in this process or another. So the frames that were only written are a tail
/// behind the last synced commit, and a crash cuts from that tail. Frames in it may be torn or missing; the checksums end the log
/// at the first of them, at a commit. When the log begins anew, all of it has been moved into the database file before, in
/// both modes: a checkpoint syncs the log, writes and syncs the database, and only then is the new header written, and
/// synced by itself. If that header is torn, there is no log, and the database has everything. (With `OFF` none of this is so.)
///
/// No transaction mixes the two, and a transaction with any grant or renewal in it is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commits {
    Synced,
    Written,
}

impl Commits {
    const fn pragma(self) -> &'static str {
        match self {
            Self::Synced => "PRAGMA synchronous=FULL;",
            Self::Written => "PRAGMA synchronous=NORMAL;",
        }
    }
}

/// A statement that is sent by itself, and the same with a change of the mode before it. SQLite carries the pragma out
/// again each time, although sqlx keeps both of them prepared: a pragma expires when it has run.
pub(super) struct Alone {
    plain: Sql,
    synced: Sql,
    written: Sql,
}

impl Alone {
    pub(super) fn new(sql: impl Fn(&str) -> Sql, text: &str) -> Self {
        let with = |how: Commits| sql(&format!("{} {text}", how.pragma()));
        Self { plain: sql(text), synced: with(Commits::Synced), written: with(Commits::Written) }
    }
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
        for attempt in 1..=ATTEMPTS {
            let before = Files::before(&path);
            let sqlite = match connect(&opening.connect).await {
                Err(error) => {
                    idle::close_lost();
                    // If it was there before, it is probably being replaced at this moment. A new log does not fit to
                    // removed memory.
                    let is_known = opening.known.load(Ordering::Relaxed);
                    let is_between = is_known && (is_missing(&error) || Files::are_lost(&path));
                    return Err(if is_between {
                        sqlx::Error::Io(std::io::Error::other(error))
                    } else {
                        error
                    });
                }
                Ok(sqlite) => sqlite,
            };
            if let Some(files) = Files::of(&path, before) {
                opening.known.store(true, Ordering::Relaxed);
                return Ok(Self { sqlite, files, watch: Watching::NotYet, commits: Some(Commits::Synced) });
            }
            // The first time this is so for a file that opening has made.
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

    /// For what does not write.
    pub(super) fn get(&mut self) -> &mut SqliteConnection {
        &mut self.sqlite
    }

    /// For grants and renewals, and whatever else has to survive a crash of the host.
    pub(super) async fn synced(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        self.commit(Commits::Synced).await
    }

    /// For releases, places in the queue, and what is tidied up.
    pub(super) async fn written(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        self.commit(Commits::Written).await
    }

    /// Not inside of a transaction, where SQLite refuses it.
    async fn commit(&mut self, how: Commits) -> sqlx::Result<&mut SqliteConnection> {
        if self.commits != Some(how) {
            self.commits = None;
            sqlx::raw_sql(how.pragma()).execute(&mut self.sqlite).await?;
            self.commits = Some(how);
        }
        Ok(&mut self.sqlite)
    }

    /// The text for one statement that is to be synced. The mode travels with it where it has to change, since each
    /// message to the thread of the connection costs as much as a short statement. After success the caller says
    /// [`is_synced`](Self::is_synced). In a transaction the mode is right already.
    pub(super) fn synced_by(&mut self, sql: &Alone) -> AssertSqlSafe<Arc<str>> {
        self.by(sql, Commits::Synced)
    }

    pub(super) fn is_synced(&mut self) {
        self.commits = Some(Commits::Synced);
    }

    /// The same for one that need not wait for the disk, and [`is_written`](Self::is_written).
    pub(super) fn written_by(&mut self, sql: &Alone) -> AssertSqlSafe<Arc<str>> {
        self.by(sql, Commits::Written)
    }

    pub(super) fn is_written(&mut self) {
        self.commits = Some(Commits::Written);
    }

    fn by(&mut self, sql: &Alone, how: Commits) -> AssertSqlSafe<Arc<str>> {
        if self.commits == Some(how) {
            return sql.plain.get();
        }
        // If it fails, nobody knows which mode it has left.
        self.commits = None;
        match how {
            Commits::Synced => sql.synced.get(),
            Commits::Written => sql.written.get(),
        }
    }

    /// A number that changes when another connection commits.
    pub(super) async fn version(&mut self) -> sqlx::Result<Option<i64>> {
        version(&mut self.sqlite).await
    }

    /// Waits until the database may have changed: for a write to the log, or for `pause` where it cannot be watched.
    pub(super) async fn pause(&mut self, pause: Duration) -> sqlx::Result<()> {
        match &mut self.watch {
            Watching::Yes(watch) if watch.works() => {
                // The pause begins anew with each success.
                if pause < Duration::from_millis(2) {
                    watch.has_helped();
                }
                watch.change(&mut self.sqlite).await?;
            }
            Watching::Yes(_) => self.watch = not_watched(&"it has failed"),
            Watching::No => tokio::time::sleep(pause).await,
            Watching::NotYet => match Watch::on(self.files.log()) {
                Ok(watch) => {
                    // The name still leads to the log that this connection reads, so that is the one which is watched.
                    self.check()?;
                    // What was written before is not told, so the caller looks at once.
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

/// Says once for each process why waiters ask for their turn every few milliseconds.
fn not_watched(why: &dyn std::fmt::Display) -> Watching {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(error = %why, "the log of the SQLite file cannot be watched; waiters ask for their turn instead");
    }
    Watching::No
}

async fn connect(options: &SqliteConnectOptions) -> sqlx::Result<SqliteConnection> {
    let mut sqlite = options.connect().await?;
    check_mode(&mut sqlite).await?;
    Ok(sqlite)
}

/// The mode is asked for on connecting, but SQLite does not fail where it cannot be had: it answers with another.
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

#[cfg(test)]
mod tests {
    use lockcore::ErrorKind;
    use sqlx::sqlite::SqliteJournalMode;

    use super::*;
    use crate::error::fatal;

    fn opening(connect: SqliteConnectOptions) -> Opening {
        Opening { connect, any_filesystem: false, known: AtomicBool::new(false) }
    }

    /// Locks of this kind have no shared memory, so there is no write-ahead log either, and SQLite does not say so.
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
