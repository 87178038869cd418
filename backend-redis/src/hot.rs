//! Which locks somebody has waited for lately.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockcore::LockName;

/// For how long it is remembered.
const LATELY: Duration = Duration::from_secs(10);
const PLACES: usize = 512;

/// The locks that somebody has waited for lately, roughly: names share places. It decides which script is tried first,
/// and so whether a rare case costs another call. Nothing else depends on it.
#[derive(Debug)]
pub(crate) struct Hot {
    start: Instant,
    /// When each was noted, in milliseconds from the start; 0 for never.
    noted: Box<[AtomicU64]>,
}

impl Hot {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), noted: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    fn place(&self, name: &LockName) -> &AtomicU64 {
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(name.as_str());
        &self.noted[usize::try_from(hash).unwrap_or_default() % PLACES]
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Somebody waits for it.
    pub(crate) fn note(&self, name: &LockName) {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or_default();
        self.place(name).store(millis + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_hot(&self, name: &LockName) -> bool {
        match self.place(name).load(Ordering::Relaxed) {
            0 => false,
            noted => self.now() < Duration::from_millis(noted) + LATELY,
        }
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
    }
}
