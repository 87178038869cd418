//! Learning at once that somebody has written to the database.
//!
//! Each commit writes to the log, and the operating system says so. It says so when the write begins to be seen, which is
//! before the commit is: `PRAGMA data_version` changes last, after an fsync if there is one. So the version is asked for
//! in short turns behind each event, and in longer ones if that takes long.
//!
//! The watch is on the file, not on its name. While a connection is open, SQLite neither removes the log nor makes it
//! anew: a checkpoint overwrites it in place or cuts it off, and only the last connection to close removes it. If somebody
//! else removes it, [`Connection::check`](super::connection::Connection::check) notices, and a new connection gets a new watch.
//! Whatever goes wrong with the watch, the database is looked at every tenth of a second.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long to wait for an event before the database is looked at anyway: leases end without an event.
const LONGEST: Duration = Duration::from_millis(100);
/// How long the version is asked for without a pause, behind an event.
const SPIN: Duration = Duration::from_micros(300);
/// How many looks there are at most that find nothing, when others write all the time: this apart, but for a few that
/// come together.
const APART: Duration = Duration::from_micros(500);
const TOGETHER: u32 = 20;

/// A watch on the log of a database.
#[derive(Debug)]
pub(super) struct Watch {
    /// Works as long as it is not dropped.
    _watcher: RecommendedWatcher,
    said: Arc<Said>,
    /// The version at the last look.
    seen: Option<i64>,
    /// When the next look would be due if all had been [`APART`].
    due: Instant,
}

/// What the operating system has said.
#[derive(Debug, Default)]
struct Said {
    event: Notify,
    failed: AtomicBool,
}

impl Watch {
    pub(super) fn on(log: &Path) -> notify::Result<Self> {
        let said = Arc::<Said>::default();
        let tell = Arc::clone(&said);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_err() {
                tell.failed.store(true, Ordering::Relaxed);
            }
            tell.event.notify_one();
        })?;
        watcher.watch(log, RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher, said, seen: None, due: Instant::now() })
    }

    /// Whether it still works.
    pub(super) fn works(&self) -> bool {
        !self.said.failed.load(Ordering::Relaxed)
    }

    /// The last look has found what it was for, so the next one is worth its cost, too.
    pub(super) fn has_helped(&mut self) {
        self.due = Instant::now().checked_sub(APART * TOGETHER).unwrap_or(self.due);
    }

    /// Waits until the database has changed, or for a tenth of a second; answers whether it has.
    pub(super) async fn change(&mut self, conn: &mut SqliteConnection) -> sqlx::Result<bool> {
        let until = Instant::now() + LONGEST;
        if timeout(LONGEST, self.said.event.notified()).await.is_err() {
            return Ok(false);
        }
        self.not_too_often().await;
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let version = version(conn).await?;
            if version != self.seen {
                self.seen = version;
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            if began.elapsed() > SPIN {
                sleep(pause).await;
                pause = (pause * 3 / 2).min(Duration::from_millis(20));
            }
        }
    }

    /// The files of others may be written thousands of times a second.
    async fn not_too_often(&mut self) {
        let now = Instant::now();
        let earliest = now.checked_sub(APART * TOGETHER).unwrap_or(now);
        self.due = (self.due + APART).max(earliest);
        if self.due > now {
            sleep_until(self.due).await;
        }
    }
}

/// A number that changes when another connection commits.
pub(super) async fn version(conn: &mut SqliteConnection) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar("PRAGMA data_version").fetch_optional(conn).await
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    use sqlx::{ConnectOptions, Connection};

    use super::*;

    async fn run(conn: &mut SqliteConnection, sql: &'static str) {
        sqlx::raw_sql(sql).execute(conn).await.expect("a statement");
    }

    /// Whether the next changes are heard of. An event that comes late is for the next question.
    async fn is_told(watch: &mut Watch, reader: &mut SqliteConnection) -> bool {
        for _ in 0..100 {
            if watch.change(reader).await.expect("an answer") {
                return true;
            }
        }
        false
    }

    /// Whatever SQLite does with the log while a reader has it open, the watch goes on.
    #[tokio::test]
    async fn a_watch_survives_checkpoints_and_other_connections() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("locks.db");
        let open = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let mut writer = open.connect().await.expect("a file");
        run(&mut writer, "CREATE TABLE t (x); INSERT INTO t VALUES (1)").await;
        let mut reader = open.connect().await.expect("a file");
        version(&mut reader).await.expect("an answer");
        let mut watch = Watch::on(&folder.path().join("locks.db-wal")).expect("it can be watched");
        watch.seen = version(&mut reader).await.expect("an answer");
        let moves = [
            "SELECT 1",
            "PRAGMA wal_checkpoint(PASSIVE)",
            "PRAGMA wal_checkpoint(RESTART)",
            "PRAGMA wal_checkpoint(TRUNCATE)",
        ];
        for what in moves {
            run(&mut writer, what).await;
            for _ in 0..3 {
                run(&mut writer, "UPDATE t SET x = x + 1").await;
                assert!(is_told(&mut watch, &mut reader).await, "after {what}");
            }
        }
        // All others go, and come back.
        writer.close().await.expect("closed");
        for _ in 0..3 {
            let mut writer = open.connect().await.expect("a file");
            run(&mut writer, "UPDATE t SET x = x + 1").await;
            assert!(is_told(&mut watch, &mut reader).await);
            writer.close().await.expect("closed");
        }
        assert!(watch.works());
    }
}
