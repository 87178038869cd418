//! Counters of the work in the background.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) renewals: Counter,
    pub(crate) renewal_calls: Counter,
    pub(crate) renewal_failures: Counter,
    pub(crate) lost: Counter,
    pub(crate) release_failures: Counter,
}

impl Counters {
    pub(crate) fn read(&self, held: usize) -> Stats {
        Stats {
            held,
            renewals: self.renewals.get(),
            renewal_calls: self.renewal_calls.get(),
            renewal_failures: self.renewal_failures.get(),
            lost: self.lost.get(),
            release_failures: self.release_failures.get(),
        }
    }
}

/// Counters of a client's work in the background since it was made. See
/// [`Locks::stats`](crate::Locks::stats).
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Leases that are renewed now.
    pub held: usize,
    /// Leases extended.
    pub renewals: u64,
    /// Calls to the backend that extended them: each carries up to 500 leases.
    pub renewal_calls: u64,
    /// Renewals whose outcome is unknown; each was tried again.
    pub renewal_failures: u64,
    /// Leases that were lost.
    pub lost: u64,
    /// Failed releases in the background; each was tried again.
    pub release_failures: u64,
}
