//! What is known about a lock's queue from the last time that we held it: it can spare the look at the queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockcore::LockName;

/// How many locks are remembered.
const MANY: usize = 4096;

/// Our last exclusive hold of a lock, which we have given up since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) sequence: i64,
    pub(crate) czxid: i64,
}

impl Last {
    /// Whether a new node with this number and zxid is surely the first in the queue.
    ///
    /// When we held the lock nobody stood before us. The server numbers the children of a node by its creates alone, so
    /// if the new node has the next number, nobody came in between: unless the folder was made anew meanwhile, and just
    /// so many came. That takes at least the deletion of our node, that of the folder, its creation, and as many
    /// creates as our number says; each of them raises the zxid, since no lock client puts several into one
    /// transaction. If it rose by less, it did not happen.
    pub(crate) fn proves_first(self, sequence: i64, czxid: i64) -> bool {
        sequence == self.sequence + 1 && self.is_recent(czxid)
    }

    fn is_recent(self, zxid: i64) -> bool {
        let same_epoch = zxid >> 32 == self.czxid >> 32;
        same_epoch && zxid - self.czxid < self.sequence + 5
    }
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    rows: Mutex<HashMap<LockName, Last>>,
    /// The highest zxid that we have seen.
    latest: AtomicI64,
}

impl Known {
    fn rows(&self) -> MutexGuard<'_, HashMap<LockName, Last>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is known out, since it is used once: unless so much has happened since that it cannot prove anything.
    pub(crate) fn take(&self, lock: &LockName) -> Option<Last> {
        let latest = self.latest.load(Ordering::Relaxed);
        self.rows().remove(lock).filter(|last| last.is_recent(latest))
    }

    pub(crate) fn put(&self, lock: &LockName, last: Last) {
        let mut rows = self.rows();
        if rows.len() >= MANY {
            rows.clear();
        }
        rows.insert(lock.clone(), last);
    }

    /// The servers have come to this zxid.
    pub(crate) fn saw(&self, zxid: i64) {
        self.latest.fetch_max(zxid, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_prove_anything_is_not_used() {
        let (known, lock) = (Known::default(), LockName::new("a").unwrap());
        for (latest, used) in [(0x1_0000_0010, true), (0x1_0000_0018, true), (0x1_0000_0019, false)] {
            known.put(&lock, Last { sequence: 4, czxid: 0x1_0000_0010 });
            known.saw(latest);
            assert_eq!(known.take(&lock).is_some(), used, "{latest:#x}");
            assert!(known.take(&lock).is_none());
        }
    }

    #[test]
    fn a_folder_that_was_made_anew_is_told_apart() {
        let last = Last { sequence: 4, czxid: 0x1_0000_0010 };
        assert!(last.proves_first(5, 0x1_0000_0012), "our delete, our create");
        assert!(!last.proves_first(6, 0x1_0000_0013), "somebody came in between");
        // Delete ours, delete the folder, make it, make 0 to 4, and ours is 5.
        assert!(!last.proves_first(5, 0x1_0000_0010 + 9));
        assert!(last.proves_first(5, 0x1_0000_0010 + 8), "one too few for that");
        assert!(!last.proves_first(5, 0x2_0000_0001), "another leader counts anew");
    }
}
