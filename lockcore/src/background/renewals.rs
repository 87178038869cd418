//! How many renewals of a client are under way, and when the server answered last.

use std::sync::atomic::AtomicU64;

use tokio::sync::Semaphore;

/// The most renewals of leases without failures, and of leases in doubt, that are under way at a time in one
/// client. They are counted apart, so that leases in doubt do not delay the others.
const UNDER_WAY: (usize, usize) = (32, 8);

/// The renewals of one client.
#[derive(Debug)]
pub(super) struct Renewals {
    pub(super) healthy: Semaphore,
    pub(super) doubtful: Semaphore,
    /// The last time at which a renewal that has its answer now was sent.
    pub(super) answered: AtomicU64,
}

impl Default for Renewals {
    fn default() -> Self {
        let (healthy, doubtful) = (Semaphore::new(UNDER_WAY.0), Semaphore::new(UNDER_WAY.1));
        Self { healthy, doubtful, answered: AtomicU64::new(0) }
    }
}
