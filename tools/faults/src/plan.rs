//! Who works in a scenario, and what a worker is told to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::nanos;

/// Who works, and how.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Crew {
    pub(crate) workers: u32,
    /// Of each worker. Some of them take the locks that are held for long, if there are such.
    pub(crate) tasks: u32,
    /// That go quickly from hand to hand; as many more are held for long.
    pub(crate) locks: u32,
    /// Mutexes only, or also a reader-writer lock and a semaphore.
    pub(crate) all_modes: bool,
    /// The longest of the usual holds, in microseconds.
    pub(crate) hold: u64,
    /// So many of a hundred holds of the others are long: so many hundredths of a lease.
    pub(crate) long: (u32, u64),
    /// So many of a hundred attempts are given up by the caller, do not wait, or end with a dropped guard.
    pub(crate) cancelled: u32,
    pub(crate) impatient: u32,
    pub(crate) dropped: u32,
    /// The whole process is stopped, now and then, between the look at the lock and the write.
    pub(crate) pauses: bool,
    /// Workers are hosts, and their tasks run jobs once for a key, one job each.
    pub(crate) jobs: bool,
    /// How long it goes on if no fault makes it longer, in milliseconds.
    pub(crate) least: u64,
}

impl Crew {
    pub(crate) const USUAL: Self = Self {
        workers: 3,
        tasks: 12,
        locks: 9,
        all_modes: true,
        hold: 1_000,
        long: (40, 60),
        cancelled: 6,
        impatient: 6,
        dropped: 15,
        pauses: false,
        jobs: false,
        least: 5_000,
    };

    /// Whether a worker may be a program in another language.
    pub(crate) fn takes_contenders(self) -> bool {
        !self.pauses && !self.jobs
    }
}

/// What one worker of a crew is to do. Its own durations are microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The number of the worker.
    pub(crate) worker: u32,
    /// What all names of locks begin with.
    pub(crate) prefix: String,
    pub(crate) crew: Crew,
    /// What the mode is drawn from: the codes of [`Mode`]. The locks share them out: a semaphore is no mutex.
    pub(crate) modes: Vec<Vec<i64>>,
    pub(crate) ttl: u64,
    /// The longest wait.
    pub(crate) wait: u64,
    pub(crate) seed: u64,
    pub(crate) history: PathBuf,
    pub(crate) witness: PathBuf,
}

/// Whether the runs with this seed are about the order of the server: every second.
pub(crate) fn in_order(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

impl Work {
    pub(crate) fn name(&self, lock: u32) -> String {
        format!("{}/{lock}", self.prefix)
    }

    /// Those of all locks.
    pub(crate) fn names(&self) -> Vec<String> {
        (0..2 * self.crew.locks).map(|lock| self.name(lock)).collect()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_micros(self.ttl)
    }

    /// Whether each request has a place of its own at the server; otherwise the tasks of a worker pass the
    /// locks on.
    pub(crate) fn in_order(&self) -> bool {
        in_order(self.seed)
    }

    /// The length of a long hold.
    pub(crate) fn long_hold(&self) -> u64 {
        self.ttl * self.crew.long.1 / 100
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
