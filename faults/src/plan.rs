//! What a worker is told to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::nanos;

/// Ends of names that a careless server, path or pattern takes for each other.
const ALIKE: [&str; 18] = [
    "a", "A", "a ", "a  ", "á", "a\u{301}", "ä", "ａ", "a%", "a_", "a*", "a/", "a//", "a\\", "a'", "a\"",
    "{a}", "a{a}",
];

/// What a worker is to do. All durations are microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The number of the worker.
    pub(crate) worker: u32,
    /// What all names of locks begin with.
    pub(crate) prefix: String,
    /// So many locks go quickly from hand to hand, and as many more are held for long.
    pub(crate) locks: u32,
    /// Their names look like each other.
    pub(crate) look_alike: bool,
    /// One of [`SHARE`] wants the latter.
    pub(crate) tasks: u32,
    /// What the mode is drawn from: the codes of [`Mode`]. The locks share them out: a semaphore is no mutex.
    pub(crate) modes: Vec<Vec<i64>>,
    pub(crate) ttl: u64,
    /// The longest wait.
    pub(crate) wait: u64,
    /// The longest of the usual holds.
    pub(crate) hold: u64,
    /// Of the locks that are held for long: so many of a hundred holds last this long.
    pub(crate) long: (u32, u64),
    /// So many of a hundred attempts are given up by the caller, do not wait, or end with a dropped guard.
    pub(crate) cancelled: u32,
    pub(crate) impatient: u32,
    pub(crate) dropped: u32,
    pub(crate) misuse: Misuse,
    pub(crate) seed: u64,
    pub(crate) history: PathBuf,
    pub(crate) witness: PathBuf,
}

impl Work {
    pub(crate) fn name(&self, lock: u32) -> String {
        let end = ALIKE.get(lock as usize).filter(|_| self.look_alike);
        end.map_or_else(|| format!("{}/{lock}", self.prefix), |end| format!("{}/{end}", self.prefix))
    }

    /// Those of all locks.
    pub(crate) fn names(&self) -> Vec<String> {
        (0..2 * self.locks).map(|lock| self.name(lock)).collect()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_micros(self.ttl)
    }
}

/// Says when the work is to end: a moment of the boot clock.
#[derive(Clone, Debug)]
pub(crate) struct Until(Arc<AtomicU64>);

impl Until {
    /// Not yet.
    pub(crate) fn later() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    pub(crate) fn now(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        nanos() >= self.0.load(Ordering::SeqCst)
    }
}

/// What a worker does beside its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Misuse {
    #[default]
    None,
    /// The whole process is stopped, now and then, between the look at the lock and the write.
    PausesBeforeWrite,
    /// Tasks block the threads of the runtime.
    StarvesRuntime,
    /// A runtime is not driven while a guard that came from it is held.
    LeavesRuntime,
    /// A runtime is gone when a guard that came from it is dropped.
    OutlivesRuntime,
}
