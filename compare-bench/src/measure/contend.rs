//! Several parties on one name: the loop that each of them runs, as a task here or in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use faults::nanos;
use lockwell::Locks;
use tokio::sync::{Barrier, Mutex};
use tokio::task::{JoinSet, spawn_blocking};

use crate::error::Result;
use crate::measure::history::{History, Turn};

/// The longest that a single acquire waits. A lock that takes longer in a benchmark is stuck. A herd of 500
/// can take 20 seconds to let each have its turn.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// What is fought for.
#[derive(Clone, Debug)]
pub(crate) enum ContendedLock {
    /// A lock of ours.
    Lock(Locks, String),
    /// A mutex of the same process, with a token of its own: the floor of `memory://`.
    Mutex(Arc<Mutex<u64>>),
}

/// Takes the lock again and again until this moment of the boot clock, and `least` times.
pub(crate) async fn contend(
    lock: &ContendedLock,
    party: usize,
    hold: Duration,
    until: &AtomicU64,
    least: usize,
) -> Result<Vec<Turn>> {
    let mut turns = Vec::new();
    loop {
        let asked = nanos();
        if asked >= until.load(Ordering::Relaxed) && turns.len() >= least {
            return Ok(turns);
        }
        let (token, acquired, released) = match lock {
            ContendedLock::Lock(locks, name) => {
                let guard = locks.lock(name.as_str()).wait(TIMEOUT).await?;
                let (acquired, token) = (nanos(), guard.token().get());
                held(hold).await?;
                let released = nanos();
                guard.release().await?;
                (token, acquired, released)
            }
            ContendedLock::Mutex(mutex) => {
                let mut token = mutex.lock().await;
                let acquired = nanos();
                *token += 1;
                held(hold).await?;
                (*token, acquired, nanos())
            }
        };
        turns.push(Turn { party, token, asked, acquired, released });
        // A lock that is free at once would keep the thread from the other tasks.
        tokio::task::consume_budget().await;
    }
}

/// Holds for this time. Not with a timer of the runtime, which counts in milliseconds: with it, a hold of
/// 1 ms takes 2 ms.
async fn held(hold: Duration) -> Result<()> {
    if !hold.is_zero() {
        spawn_blocking(move || thread::sleep(hold)).await?;
    }
    Ok(())
}

/// Tasks of this process.
pub(crate) async fn among_tasks(
    lock: &ContendedLock,
    tasks: usize,
    hold: Duration,
    length: Duration,
) -> Result<History> {
    let (start, until) = (Arc::new(Barrier::new(tasks)), Arc::new(AtomicU64::new(0)));
    let mut set = JoinSet::new();
    for party in 0..tasks {
        let (lock, start, until) = (lock.clone(), Arc::clone(&start), Arc::clone(&until));
        set.spawn(async move {
            start.wait().await;
            // The last one to begin decides, so that all of them ask at once for that long.
            until
                .fetch_max(nanos() + u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            contend(&lock, party, hold, &until, 0).await
        });
    }
    let mut turns = Vec::new();
    while let Some(done) = set.join_next().await {
        turns.extend(done??);
    }
    History::check(turns, tasks, 1, until.load(Ordering::Relaxed))
}
