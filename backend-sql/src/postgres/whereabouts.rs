//! Where the queues of locks were found last: in their rows, or in the table.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwell_core::LockName;

/// The shortest time between two moves from the table back into rows. Where claims that cannot wait in rows come
/// again and again, the places stay in the table.
const REFILL_EVERY: Duration = Duration::from_millis(100);

/// Where the queues of locks were found last, so that a request is sent to the right place first. It is an
/// approximation, since names share entries; a wrong one costs a request.
#[derive(Debug)]
pub(super) struct Whereabouts {
    hash: RandomState,
    in_table: Box<[AtomicBool]>,
    refilled: Mutex<Option<Instant>>,
}

impl Whereabouts {
    /// All are in their rows.
    pub(super) fn new() -> Self {
        let in_table = (0..512).map(|_| AtomicBool::new(false)).collect();
        Self { hash: RandomState::new(), in_table, refilled: Mutex::default() }
    }

    fn entry(&self, name: &LockName) -> &AtomicBool {
        let hash = self.hash.hash_one(name.as_str());
        &self.in_table[usize::try_from(hash % self.in_table.len() as u64).unwrap_or_default()]
    }

    pub(super) fn note(&self, name: &LockName, in_table: bool) {
        self.entry(name).store(in_table, Ordering::Relaxed);
    }

    pub(super) fn is_in_table(&self, name: &LockName) -> bool {
        self.entry(name).load(Ordering::Relaxed)
    }

    /// Whether places may move back now.
    pub(super) fn may_refill(&self) -> bool {
        let mut refilled = self.refilled.lock().unwrap_or_else(PoisonError::into_inner);
        let may = refilled.is_none_or(|last| last.elapsed() >= REFILL_EVERY);
        if may {
            *refilled = Some(Instant::now());
        }
        may
    }
}
