//! Notices at once that another process has written to the database.
//!
//! Each commit writes to the log, and the operating system reports it. The event comes before the commit is
//! visible: `PRAGMA data_version` changes last, after an fsync if there is one. So the version is read
//! repeatedly after each event, at short intervals first, then at longer ones.
//!
//! The watch is on the file, not on its name. While a connection is open, SQLite neither removes the log nor
//! makes it anew: a checkpoint overwrites it in place or cuts it off, and only the last connection to close
//! removes it. If somebody else removes it, [`Connection::check`](super::connection::Connection::check)
//! notices, and a new connection gets a new watch. Even if the watch fails, the database is polled every
//! tenth of a second.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use sqlx_sqlite::SqliteConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How long to wait for an event before the database is polled anyway: a lease ends without an event.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// How long the version is read without a pause after an event.
const SPIN: Duration = Duration::from_micros(300);
/// The shortest average time between two polls, when others write all the time and the polls find nothing. A
/// few polls may come closer together.
const MIN_INTERVAL: Duration = Duration::from_micros(500);
const BURST: u32 = 20;

/// A watch on the log of a database.
#[derive(Debug)]
pub(super) struct Watch {
    /// The watch ends when this is dropped.
    _watcher: RecommendedWatcher,
    events: Arc<Events>,
    /// The version at the last poll.
    seen: Option<i64>,
    /// When the next poll would be due if all were [`MIN_INTERVAL`] apart.
    due: Instant,
}

/// The events of the operating system.
#[derive(Debug, Default)]
struct Events {
    event: Notify,
    failed: AtomicBool,
}

impl Watch {
    pub(super) fn on(log: &Path) -> notify::Result<Self> {
        let events = Arc::<Events>::default();
        let sender = Arc::clone(&events);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.is_err() {
                sender.failed.store(true, Ordering::Relaxed);
            }
            sender.event.notify_one();
        })?;
        watcher.watch(log, RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher, events, seen: None, due: Instant::now() })
    }

    /// Whether it still works.
    pub(super) fn works(&self) -> bool {
        !self.events.failed.load(Ordering::Relaxed)
    }

    /// Notes that the last poll found a waiter's turn, so that the next ones may follow at once.
    pub(super) fn note_success(&mut self) {
        self.due = Instant::now().checked_sub(MIN_INTERVAL * BURST).unwrap_or(self.due);
    }

    /// Waits until the database has changed, or for a tenth of a second. Returns whether it has changed.
    pub(super) async fn change(&mut self, conn: &mut SqliteConnection) -> sqlx_core::Result<bool> {
        let until = Instant::now() + LONGEST_WAIT;
        if timeout(LONGEST_WAIT, self.events.event.notified()).await.is_err() {
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

    /// Limits the number of polls: other programs may write the file thousands of times a second.
    async fn not_too_often(&mut self) {
        let now = Instant::now();
        let earliest = now.checked_sub(MIN_INTERVAL * BURST).unwrap_or(now);
        self.due = (self.due + MIN_INTERVAL).max(earliest);
        if self.due > now {
            sleep_until(self.due).await;
        }
    }
}

/// A number that changes when another connection commits.
pub(super) async fn version(conn: &mut SqliteConnection) -> sqlx_core::Result<Option<i64>> {
    sqlx_core::query_scalar::query_scalar("PRAGMA data_version").fetch_optional(conn).await
}

#[cfg(test)]
mod tests {
    use sqlx_core::connection::ConnectOptions;
    use sqlx_core::connection::Connection;
    use sqlx_sqlite::{SqliteConnectOptions, SqliteJournalMode};

    use super::*;

    async fn run(conn: &mut SqliteConnection, sql: &'static str) {
        sqlx_core::raw_sql::raw_sql(sql).execute(conn).await.expect("a statement");
    }

    /// Whether a change is noticed. An event that comes late counts for the next call.
    async fn is_notified(watch: &mut Watch, reader: &mut SqliteConnection) -> bool {
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
                assert!(is_notified(&mut watch, &mut reader).await, "after {what}");
            }
        }
        // All others go, and come back.
        writer.close().await.expect("closed");
        for _ in 0..3 {
            let mut writer = open.connect().await.expect("a file");
            run(&mut writer, "UPDATE t SET x = x + 1").await;
            assert!(is_notified(&mut watch, &mut reader).await);
            writer.close().await.expect("closed");
        }
        assert!(watch.works());
    }
}
