//! Names that are values of a label: those of classes, and of jobs.
//!
//! A recorder keeps each series for as long as it lives, and names may come from a table. So a process tells
//! a number of them apart, and the rest is one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::system::PerProcess;

/// How many names of a kind are told apart in a process. A name has some twenty series, a third of them
/// histograms: more than this is a burden for whoever collects them, and fits in no dashboard.
pub(super) const MOST: usize = 100;

/// The number of all later names.
pub(super) const LAST: u8 = 100;
const _: () = assert!(LAST as usize == MOST);

/// What they are called.
const OTHER: &str = "other";

/// The names of one kind, in the order of their arrival.
///
/// A name that is there is found without a lock, which would be one for all claims of the process.
#[derive(Debug)]
pub(super) struct Names {
    kind: &'static str,
    first: [OnceLock<Box<str>>; MOST],
    is_told: AtomicBool,
}

impl Names {
    fn new(kind: &'static str) -> Arc<Self> {
        let first = [const { OnceLock::new() }; MOST];
        Arc::new(Self { kind, first, is_told: AtomicBool::new(false) })
    }

    /// The classes of this process.
    pub(super) fn of_classes() -> Arc<Self> {
        static CLASSES: PerProcess<Arc<Names>> = PerProcess::new();
        CLASSES.get_or_init(|| Self::new("classes"))
    }

    /// The jobs of this process.
    #[cfg(feature = "metrics")]
    pub(super) fn of_jobs() -> Arc<Self> {
        static JOBS: PerProcess<Arc<Names>> = PerProcess::new();
        JOBS.get_or_init(|| Self::new("jobs"))
    }

    /// The number of a name; [`LAST`] is that of all names which are not told apart. A subscriber of the
    /// application may run in here: it must not be called under a mutex.
    pub(super) fn number(&self, name: &str) -> u8 {
        if name == OTHER {
            return LAST;
        }
        let found = self.first.iter().position(|first| **first.get_or_init(|| name.into()) == *name);
        if found.is_none() && !self.is_told.swap(true, Ordering::Relaxed) {
            let kind = self.kind;
            tracing::warn!(
                "there are more than {MOST} {kind}: those that come later are counted as {OTHER:?}"
            );
        }
        found.and_then(|at| u8::try_from(at).ok()).unwrap_or(LAST)
    }

    /// The name with this number.
    pub(super) fn name(&self, number: u8) -> &str {
        self.first.get(usize::from(number)).and_then(OnceLock::get).map_or(OTHER, |name| name)
    }
}
