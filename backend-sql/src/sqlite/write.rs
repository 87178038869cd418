//! How a statement that writes is sent, and when its commit is on the disk.

use futures_util::TryStreamExt;
use sqlx_core::Either;
use sqlx_core::executor::Executor;
use sqlx_core::query::Query;
use sqlx_sqlite::{SqliteArguments, SqliteConnection, SqliteRow};

use crate::sql::library::Prepared;
use crate::sql::table::{Sql, Table};

/// What a commit waits for. In each case it survives the death of the process.
///
/// `Synced` (`synchronous=FULL`): it is on the disk before anybody sees it, or has an answer. `Written`
/// (`NORMAL`): it comes to the disk with the next commit that is synced, or with the next checkpoint. A
/// release, a place in the queue and a purge need no more: one that is forgotten lets a lease, a place or a
/// row run out. `Granted`, for grants, renewals and downgrades, is one of the two
/// ([`Durability`](super::durability::Durability)).
///
/// A synced commit cannot be lost for the sake of one before it that is only written, although the checksum
/// of each frame in the log covers all frames before it: they are in the same file, and an fsync syncs all of
/// the file that was written before, by this connection or another, in this process or another. So the frames
/// that were only written are a tail behind the last synced commit, and a crash cuts from that tail. Frames
/// in it may be torn or missing; the checksums end the log at the first of them, at a commit. When the log
/// begins anew, all of it has been moved into the database file before, in both modes: a checkpoint syncs the
/// log, writes and syncs the database, and only then is the new header written, and synced by itself. If that
/// header is torn, there is no log, and the database has everything. (With `OFF` none of this is so.)
///
/// No transaction mixes them: one with any grant or renewal in it is at least `Granted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commits {
    Synced,
    Granted,
    Written,
}

/// The mode of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncMode {
    Full,
    Normal,
}

impl SyncMode {
    pub(super) const fn pragma(self) -> &'static str {
        match self {
            Self::Full => "PRAGMA synchronous=FULL;",
            Self::Normal => "PRAGMA synchronous=NORMAL;",
        }
    }
}

/// A statement that writes, and the same with a change of the mode before it. SQLite carries the pragma out
/// again each time, although sqlx keeps both of them prepared: a pragma expires when it has run.
pub(super) struct Write<const COMMITS: u8> {
    plain: Sql,
    full: Sql,
    normal: Sql,
}

/// Its commit is [`Commits::Synced`].
pub(super) type Synced = Write<{ Commits::Synced as u8 }>;

/// Its commit is [`Commits::Granted`].
pub(super) type Granted = Write<{ Commits::Granted as u8 }>;

/// Its commit is [`Commits::Written`].
pub(super) type Written = Write<{ Commits::Written as u8 }>;

impl<const COMMITS: u8> Prepared for Write<COMMITS> {
    fn prepare(table: &Table, text: &str) -> Self {
        let switching = |mode: SyncMode| Sql::new(table, &format!("{} {text}", mode.pragma()));
        Self {
            plain: Sql::new(table, text),
            full: switching(SyncMode::Full),
            normal: switching(SyncMode::Normal),
        }
    }
}

impl<const COMMITS: u8> Write<COMMITS> {
    pub(super) const COMMITS: Commits = match COMMITS {
        number if number == Commits::Granted as u8 => Commits::Granted,
        number if number == Commits::Written as u8 => Commits::Written,
        _ => Commits::Synced,
    };

    /// The statement after a change of the mode to this one, or without a change.
    pub(super) fn switching(&self, to: Option<SyncMode>) -> &Sql {
        match to {
            Some(SyncMode::Full) => &self.full,
            Some(SyncMode::Normal) => &self.normal,
            None => &self.plain,
        }
    }
}

/// The result of a statement.
pub(super) struct Done {
    pub(super) rows: Vec<SqliteRow>,
    pub(super) changed: u64,
}

/// Runs a query up to the end of its `statements`-th statement.
///
/// It does not stop at the first row, which comes before the commit. SQLite moves its log into the database
/// file only after a statement that runs to its end; otherwise the log grows without bound, and each commit
/// gets slower. It does not wait for the end of the query either: that is one more message of the
/// connection's thread, and receiving a message costs as much as the statement.
pub(super) async fn run(
    conn: &mut SqliteConnection,
    query: Query<'_, sqlx_sqlite::Sqlite, SqliteArguments>,
    statements: usize,
) -> sqlx_core::Result<Done> {
    let mut answers = conn.fetch_many(query);
    let (mut rows, mut ended) = (Vec::new(), 0);
    while let Some(answer) = answers.try_next().await? {
        match answer {
            Either::Right(row) => rows.push(row),
            Either::Left(done) => {
                ended += 1;
                if ended == statements {
                    return Ok(Done { rows, changed: done.rows_affected() });
                }
            }
        }
    }
    Err(sqlx_core::Error::WorkerCrashed)
}
