//! How a statement waits for another writer of the file.
//!
//! SQLite itself waits by sleeping: for 1 ms, 2 ms, 5 ms and so on up to 100 ms. That is long beside a
//! transaction, which takes some tens of microseconds. So a connection that writes switches this off, and
//! tries again by itself: without a pause first, since each try takes as long as a transaction, and then
//! after pauses that grow from some tens of microseconds to some milliseconds. A pause costs several switches
//! between threads, and so more than a few tries.

use std::time::{Duration, Instant};

use lockwell_core::backend::run_blocking;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_sqlite::SqliteConnection;

/// For how long a statement is tried again without a pause, from the end of its first try on. That is long
/// enough for the transactions of a few others.
const SPIN: Duration = Duration::from_micros(250);
const SHORTEST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);
/// The timers of a runtime go in steps of a millisecond.
const TIMER: Duration = Duration::from_millis(2);

/// How a connection waits for others.
#[derive(Debug)]
pub(super) struct Busy {
    /// How long it waits.
    patience: Duration,
    /// Whether SQLite waits by itself.
    is_left_to_sqlite: bool,
}

/// The pauses of one statement.
#[derive(Debug)]
pub(super) struct Pauses {
    /// When the first try has failed. A try alone may take longer than [`SPIN`].
    since: Option<Instant>,
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { since: None, next: SHORTEST_PAUSE }
    }
}

impl Busy {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, is_left_to_sqlite: true }
    }

    /// From now on statements fail at once if somebody else writes.
    pub(super) async fn begin(&mut self, conn: &mut SqliteConnection) -> sqlx_core::Result<()> {
        self.leave_to_sqlite(conn, false).await
    }

    /// From now on SQLite waits by itself.
    pub(super) async fn end(&mut self, conn: &mut SqliteConnection) -> sqlx_core::Result<()> {
        self.leave_to_sqlite(conn, true).await
    }

    async fn leave_to_sqlite(&mut self, conn: &mut SqliteConnection, leave: bool) -> sqlx_core::Result<()> {
        if self.is_left_to_sqlite == leave {
            return Ok(());
        }
        let millis = if leave { self.patience.as_millis() } else { 0 };
        sqlx_core::raw_sql::raw_sql(AssertSqlSafe(format!("PRAGMA busy_timeout={millis}")))
            .execute(conn)
            .await?;
        self.is_left_to_sqlite = leave;
        Ok(())
    }

    /// Waits before the next try of a statement that has failed like this. False: another try is of no use.
    pub(super) async fn waits(&self, error: &sqlx_core::Error, pauses: &mut Pauses) -> bool {
        if !is_busy(error) {
            return false;
        }
        let now = Instant::now();
        let waited = now.duration_since(*pauses.since.get_or_insert(now));
        if waited >= self.patience {
            return false;
        }
        // The next try waits for the thread of the connection, so others run meanwhile. To yield here would
        // wake another thread of the runtime.
        if waited >= SPIN {
            // Jitter, so that those who wait for one writer do not come together.
            let pause = pauses.next.mul_f64(0.5 + rand::random::<f64>());
            if pause >= TIMER {
                tokio::time::sleep(pause).await;
            } else {
                sleep_short(pause).await;
            }
            pauses.next = (pauses.next * 3 / 2).min(LONGEST_PAUSE);
        }
        true
    }
}

/// Sleeps for less than the timers of a runtime can; a little longer if the system has no thread left.
async fn sleep_short(pause: Duration) {
    if run_blocking("lockwell-pause", move || std::thread::sleep(pause)).await.is_err() {
        tokio::time::sleep(TIMER).await;
    }
}

/// Whether somebody else writes, or has written since the statement began to read. Extended codes have the
/// primary code, 5, in their low byte.
fn is_busy(error: &sqlx_core::Error) -> bool {
    let sqlx_core::Error::Database(error) = error else { return false };
    error.code().and_then(|code| code.parse::<u32>().ok()).is_some_and(|code| code & 0xff == 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_sleep_waits_for_no_thread_of_the_application() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().expect("a runtime");
        let (end, until) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let taken = tokio::task::spawn_blocking(move || until.recv());
            for _ in 0..3 {
                let slept = tokio::time::timeout(Duration::from_secs(10), sleep_short(SHORTEST_PAUSE)).await;
                assert!(slept.is_ok(), "it waits for the thread");
            }
            assert!(!taken.is_finished());
        });
        drop(end);
    }
}
