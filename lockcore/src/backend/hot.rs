//! Which locks were contended lately.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use crate::LockName;

/// How long a contended lock is remembered, unless the backend says otherwise.
const LATELY: Duration = Duration::from_secs(10);
const ENTRIES: usize = 512;

/// The locks that were contended lately, that is, had waiters. It is an approximation, since names share
/// entries.
///
/// It is for servers where a lock without waiters takes a shorter request than one with waiters: it predicts
/// which of the two to send first. A wrong prediction costs one more request. A name is remembered for ten
/// seconds, unless the backend chooses another time.
#[derive(Debug)]
pub struct Hot {
    /// Not a [`Clock`](crate::Clock): what is remembered for too long or too short costs a request and
    /// nothing else.
    start: Instant,
    hash: RandomState,
    span: Duration,
    /// When each was noted, in milliseconds from the start; 0 for never.
    noted: Box<[AtomicU64]>,
}

impl Hot {
    /// No lock is contended.
    #[must_use]
    pub fn new() -> Self {
        Self::lasting(LATELY)
    }

    /// No lock is contended. A name is remembered for this time.
    #[must_use]
    pub fn lasting(span: Duration) -> Self {
        let noted = (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), hash: RandomState::default(), span, noted }
    }

    fn entry(&self, name: &LockName) -> &AtomicU64 {
        let hash = self.hash.hash_one(name.as_str());
        &self.noted[usize::try_from(hash).unwrap_or_default() % ENTRIES]
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes that a claim waits for this lock.
    pub fn note(&self, name: &LockName) {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or_default();
        self.entry(name).store(millis + 1, Ordering::Relaxed);
    }

    /// Notes that the prediction was wrong: nobody waits for this lock any more.
    pub fn forget(&self, name: &LockName) {
        self.entry(name).store(0, Ordering::Relaxed);
    }

    /// Whether a claim has waited for this lock lately.
    pub fn is_hot(&self, name: &LockName) -> bool {
        match self.entry(name).load(Ordering::Relaxed) {
            0 => false,
            noted => self.now() < Duration::from_millis(noted) + self.span,
        }
    }
}

impl Default for Hot {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_hot_once_it_was_noted() {
        let (hot, [one, two]) = (Hot::new(), ["a", "b"].map(|name| LockName::new(name).unwrap()));
        assert!(!hot.is_hot(&one));
        hot.note(&one);
        assert!(hot.is_hot(&one) && !hot.is_hot(&two));
        hot.forget(&one);
        assert!(!hot.is_hot(&one));
    }
}
