//! The floor of `memory://`: the mutex that a program without leases, tokens and other processes would take.

use std::sync::Arc;

use tokio::sync::Mutex;

#[derive(Debug, Default)]
pub(crate) struct MemoryFloor {
    mutexes: Vec<Arc<Mutex<u64>>>,
}

impl MemoryFloor {
    pub(super) fn new() -> Self {
        Self { mutexes: (0..64).map(|_| Arc::default()).collect() }
    }

    /// Locks and unlocks, `count` times.
    pub(super) async fn cycles(&mut self, name: usize, count: u32) {
        let mutex = &self.mutexes[name % self.mutexes.len()];
        for _ in 0..count {
            *mutex.lock().await += 1;
        }
    }
}
