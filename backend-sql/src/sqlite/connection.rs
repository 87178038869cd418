//! One connection to a database file, and its state.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockwell_core::Moment;
use lockwell_core::backend::Waiters;
use sqlx_core::connection::ConnectOptions;
use sqlx_core::connection::Connection as _;
use sqlx_core::query::Query;
use sqlx_core::row::Row;
use sqlx_sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection};
use uuid::Uuid;

use super::busy::{Busy, Pauses};
use super::descriptors::{Descriptors, Finding};
use super::durability::{Durability, LOOK_EVERY};
use super::files::Files;
use super::filesystem;
use super::forked::Counted;
use super::sockets::Sockets;
use super::version::check_version;
use super::watch::{Watch, version};
use super::write::{self, Commits, Done, SyncMode, Write};
use super::write_back::WriteBack;
use crate::client::idle;
use crate::dialect::error::{ended, misconfigured, refused};
use crate::ids::AsUuid;

const REFUSED: &str = "this user may not open the database file, or may not use its folder";

/// How often a file that is replaced while it is being opened is opened again.
const ATTEMPTS: u32 = 5;

/// How often a file that seems to be open in this process already is looked at again before it is refused.
const LOOKS: u32 = 50;

/// How a file is opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) connect: SqliteConnectOptions,
    /// How long a statement waits for another writer.
    pub(super) patience: Duration,
    /// Whether any file system is allowed.
    pub(super) any_filesystem: bool,
    /// Whether it has been opened before.
    pub(super) known: AtomicBool,
    pub(super) durability: Arc<Durability>,
    /// What else has opened it in this process.
    pub(super) finding: Finding,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    sqlite: SqliteConnection,
    /// The waiters of the client whose connection it is.
    pub(super) waiters: Arc<Waiters>,
    files: Files,
    descriptors: Descriptors,
    watch: Watching,
    /// `None`: the mode is being changed.
    mode: Option<SyncMode>,
    durability: Arc<Durability>,
    sockets: Sockets,
    busy: Busy,
    /// When its files had just been opened by their names.
    opened: Moment,
    /// When it was opened, or has looked at the disk.
    looked: Instant,
    /// The bound of tokens when the connection last read or raised the state of the tables.
    bound: Option<i64>,
    write_back: WriteBack,
    /// Whether the file system writes to a disk.
    is_flushed: bool,
    // After the connection: it is counted until it is closed.
    _counted: Counted,
}

/// A statement with its arguments.
pub(super) type Bound<'q> = Query<'q, sqlx_sqlite::Sqlite, SqliteArguments>;

/// Whether the log is watched.
#[derive(Debug)]
enum Watching {
    /// Nobody has waited on this connection yet.
    NotYet,
    Yes(Box<Watch>),
    No,
}

impl Connection {
    pub(super) async fn open(opening: &Opening, waiters: &Arc<Waiters>) -> sqlx_core::Result<Self> {
        let path: PathBuf = opening.connect.get_filename().to_owned();
        if let Some(why) = (!opening.any_filesystem).then(|| filesystem::refusal(&path)).flatten() {
            return Err(misconfigured(why));
        }
        if let Some(why) = opening.finding.get() {
            return Err(misconfigured(*why));
        }
        let counted = admitted(&path).await?;
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
                        return Err(sqlx_core::Error::Io(std::io::Error::other(error)));
                    }
                    let is_refused = is_missing(&error) && filesystem::is_forbidden(&path);
                    return Err(if is_refused { refused(REFUSED) } else { error });
                }
                Ok(sqlite) => sqlite,
            };
            if let Some(files) = Files::of(&path, before) {
                let descriptors = Descriptors::of(&path, &opening.finding).map_err(misconfigured)?;
                opening.known.store(true, Ordering::Relaxed);
                let is_flushed = !filesystem::is_in_memory(&path);
                return Ok(Self {
                    sqlite,
                    waiters: Arc::clone(waiters),
                    files,
                    descriptors,
                    watch: Watching::NotYet,
                    mode: Some(SyncMode::Full),
                    durability: Arc::clone(&opening.durability),
                    sockets: Sockets::of(&path).map_err(sqlx_core::Error::Io)?,
                    busy: Busy::new(opening.patience),
                    opened: Moment::now(),
                    looked: Instant::now(),
                    bound: None,
                    write_back: WriteBack::default(),
                    is_flushed,
                    _counted: counted,
                });
            }
            // This is normal once, for a file that was created by opening it.
            sqlite.close().await?;
            if attempt > 2 {
                // An idle connection of ours may be what holds a removed log.
                idle::close_lost();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Err(sqlx_core::Error::Io(std::io::Error::other(
            "the database file or one of those beside it (-wal, -shm) is being replaced; if they were removed while this \
             process had them open, all its connections to them must be closed first",
        )))
    }

    pub(super) fn client(&self) -> Uuid {
        self.waiters.client().as_uuid()
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

    /// Notes the bound of tokens. Returns whether it is the one that was noted before.
    pub(super) fn is_known(&mut self, bound: Option<i64>) -> bool {
        std::mem::replace(&mut self.bound, bound) == bound
    }

    /// The sockets of the clients of this file.
    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Runs a statement that writes.
    pub(super) async fn write<'q, const COMMITS: u8>(
        &mut self,
        sql: &Write<COMMITS>,
        bind: impl Fn(Bound<'q>) -> Bound<'q>,
    ) -> sqlx_core::Result<Done> {
        self.write_several(sql, 1, bind).await
    }

    /// Runs so many statements in one message. They may begin and end a transaction: nothing else does, so
    /// whoever is stopped between two messages keeps nobody from writing.
    pub(super) async fn write_several<'q, const COMMITS: u8>(
        &mut self,
        sql: &Write<COMMITS>,
        statements: usize,
        bind: impl Fn(Bound<'q>) -> Bound<'q>,
    ) -> sqlx_core::Result<Done> {
        let mut pauses = Pauses::new();
        loop {
            match self.try_write(sql, statements, &bind).await {
                // The first statement has done nothing.
                Err(error) if self.busy.waits(&error, &mut pauses).await => (),
                // A transaction of these statements may have begun.
                Err(error) if statements > 1 => return self.roll_back(error).await,
                Err(error) => return Err(error),
                Ok(done) => {
                    self.note_commit();
                    return Ok(done);
                }
            }
        }
    }

    /// A change of the mode is sent in the same message, since each message to the thread of the connection
    /// costs as much as a short statement.
    async fn try_write<'q, const COMMITS: u8>(
        &mut self,
        sql: &Write<COMMITS>,
        statements: usize,
        bind: &impl Fn(Bound<'q>) -> Bound<'q>,
    ) -> sqlx_core::Result<Done> {
        self.busy.begin(&mut self.sqlite).await?;
        let mode = self.change_for(Write::<COMMITS>::COMMITS);
        let query = bind(sqlx_core::query::query(sql.switching(mode).get()));
        if mode.is_none() {
            let done = write::run(&mut self.sqlite, query, statements).await;
            return self.noted(done);
        }
        // If the statement fails, the mode is unknown.
        self.mode = None;
        let done = write::run(&mut self.sqlite, query, statements + 1).await;
        let done = self.noted(done)?;
        self.mode = mode;
        Ok(done)
    }

    /// Ends the transaction of statements of which one has failed.
    async fn roll_back<T>(&mut self, error: sqlx_core::Error) -> sqlx_core::Result<T> {
        let ending = sqlx_core::raw_sql::raw_sql("ROLLBACK").execute(&mut self.sqlite).await.map(drop);
        match self.noted(ending) {
            // SQLite has rolled back by itself, as it does when the disk is full, or none had begun.
            Err(sqlx_core::Error::Database(ending)) if is_over(&*ending) => Err(error),
            ending => ended(Err(error), ending),
        }
    }

    /// The mode to change to before such a commit. Where an fsync does nothing, the mode stays `Full`.
    fn change_for(&self, commits: Commits) -> Option<SyncMode> {
        let is_synced = match commits {
            _ if !self.is_flushed => true,
            Commits::Synced => true,
            Commits::Granted => self.durability.syncs_grants,
            Commits::Written => false,
        };
        let mode = if is_synced { SyncMode::Full } else { SyncMode::Normal };
        (self.mode != Some(mode)).then_some(mode)
    }

    fn note_commit(&mut self) {
        if self.mode != Some(SyncMode::Full) {
            self.write_back.note_commit(self.files.log(), &self.durability);
        }
    }

    fn noted<T>(&self, outcome: sqlx_core::Result<T>) -> sqlx_core::Result<T> {
        outcome.inspect_err(|error| self.durability.note(error))
    }

    /// Whether it was open at this moment already.
    pub(super) fn was_open(&self, at: Moment) -> bool {
        self.opened <= at
    }

    /// Whether it is time to [look at the disk](Self::look_at_disk).
    pub(super) fn is_look_due(&self) -> bool {
        let is_due = self.looked.elapsed() >= LOOK_EVERY || self.durability.failed().is_some();
        !self.durability.syncs_grants && self.is_flushed && is_due
    }

    /// Now and then moves the log into the database file, and so notices whether the disk takes what is
    /// written. After a failure each call does, until it succeeds: the volume may have been moved to another
    /// host, where nobody sees what is written here.
    pub(super) async fn look_at_disk(&mut self) -> sqlx_core::Result<()> {
        if !self.is_look_due() {
            return Ok(());
        }
        self.looked = Instant::now();
        let looked =
            sqlx_core::raw_sql::raw_sql("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut self.sqlite).await;
        self.noted(looked.map(drop))
    }

    /// Moves all of the log into the database file. False: others prevented it.
    pub(super) async fn checkpoint_all(&mut self) -> sqlx_core::Result<bool> {
        self.busy.end(&mut self.sqlite).await?;
        let moved = sqlx_core::query::query("PRAGMA wal_checkpoint(FULL)").fetch_one(&mut self.sqlite).await;
        let (busy, log, moved): (i64, i64, i64) = {
            let row = self.noted(moved)?;
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)
        };
        Ok(busy == 0 && log == moved)
    }

    /// A number that changes when another connection commits.
    pub(super) async fn version(&mut self) -> sqlx_core::Result<Option<i64>> {
        version(&mut self.sqlite).await
    }

    /// Waits until the database may have changed: for a write to the log, or for `pause` where it cannot be
    /// watched.
    pub(super) async fn pause(&mut self, pause: Duration) -> sqlx_core::Result<()> {
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

    /// Whether this is still the file that everybody else finds under its name, and nothing else in this
    /// process uses it.
    pub(super) fn check(&self) -> sqlx_core::Result<()> {
        self.files.check().and_then(|()| self.descriptors.check()).map_err(sqlx_core::Error::Io)
    }
}

/// Whether the transaction has already ended.
fn is_over(error: &dyn sqlx_core::error::DatabaseError) -> bool {
    error.message().contains("no transaction is active")
}

/// Logs, once per process, why waiters poll every few milliseconds.
fn not_watched(why: &dyn std::fmt::Display) -> Watching {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        tracing::warn!(error = %why, "the log of the SQLite file cannot be watched; waiters ask for their turn instead");
    }
    Watching::No
}

/// Refuses a file that must not be opened: closing it again would do harm already.
pub(super) async fn admitted(path: &Path) -> sqlx_core::Result<Counted> {
    if let Some(why) = filesystem::second_name(path) {
        return Err(misconfigured(why));
    }
    let (counted, is_first) = Counted::new().map_err(misconfigured)?;
    let mut looks = 0;
    while let Some(why) = Descriptors::refusal(path, is_first) {
        looks += 1;
        // The last connection that this process has dropped may be on its way to its end.
        if looks > LOOKS {
            return Err(misconfigured(why));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(counted)
}

async fn connect(options: &SqliteConnectOptions) -> sqlx_core::Result<SqliteConnection> {
    let mut sqlite = options.connect().await?;
    check_version(&mut sqlite).await?;
    check_mode(&mut sqlite).await?;
    Ok(sqlite)
}

/// Checks the journal mode. Connecting asks for it, but SQLite does not fail if it is not possible: it
/// answers with another.
async fn check_mode(sqlite: &mut SqliteConnection) -> sqlx_core::Result<()> {
    let mode: String = sqlx_core::query_scalar::query_scalar("PRAGMA journal_mode").fetch_one(sqlite).await?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(misconfigured(format!(
        "the database cannot be used with a write-ahead log (its journal_mode stays {mode:?}): the file must be on a local \
         file system with shared memory, in a folder where files may be created, and no other program may use it in \
         another mode"
    )))
}

fn is_missing(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Database(error) if error.code().is_some_and(|code| code == "14"))
}

#[cfg(test)]
mod tests {
    use lockwell_core::ErrorKind;
    use sqlx_sqlite::SqliteJournalMode;

    use super::*;
    use crate::dialect::error::fatal;

    fn opening(connect: SqliteConnectOptions) -> Opening {
        let url = "sqlite://locks.db".parse().expect("an address");
        let durability = Arc::new(Durability::of(&url, connect.get_filename()).expect("a default"));
        let patience = Duration::from_secs(1);
        Opening {
            connect,
            patience,
            any_filesystem: false,
            known: AtomicBool::new(false),
            durability,
            finding: Finding::default(),
        }
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
        let error =
            fatal(&Connection::open(&opening(connect), &Waiters::new()).await.expect_err("it cannot work"));
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
        let mut conn = Connection::open(&opening(connect), &Waiters::new()).await.expect("a file");
        std::fs::remove_file(conn.files.log()).expect("a log");
        for _ in 0..3 {
            conn.pause(Duration::from_millis(1)).await.expect("a pause");
            assert!(matches!(conn.watch, Watching::No));
        }
    }
}
