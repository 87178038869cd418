//! Which process this is, also after a fork.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks lead to this process, as far as the children have noted them.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process: it differs from those that it was forked from, and from its siblings.
///
/// It is the id of the process and the number of forks that were [noted](note_fork). The id alone would not do where
/// a child is in a namespace of its own, and may have the id of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The process that calls this.
    pub fn this() -> Self {
        Self((u64::from(FORKS.load(Ordering::Relaxed)) << 32) | u64::from(std::process::id()))
    }

    /// A number that is never 0, and never that of another process.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The process with this number.
    #[cfg(test)]
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// Notes that this process is a forked child. What the parent keeps is not that of this process from now on.
///
/// Whoever can run code in each forked child, such as the hook of an interpreter, calls it there, before anything
/// else of this library. Without it a child is recognised by its id, which another process of the line may have where
/// processes have namespaces of their own.
pub fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
