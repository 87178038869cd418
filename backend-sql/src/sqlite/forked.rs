//! Refuses SQLite in a forked child whose parent had files open.
//!
//! SQLite notes for the whole process which file it has locked. A forked child inherits these notes, but not
//! the locks, so it would take part in no exclusion: "How To Corrupt An SQLite Database File", section 2.6,
//! forbids it.

use std::sync::atomic::{AtomicUsize, Ordering};

use lockwell_core::backend::{PerProcess, Process};

/// The connections of this process, and those that its parent had at the fork, which nobody here closes.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The connections that the parent had.
static INHERITED: PerProcess<usize> = PerProcess::new();

/// A connection of this process, from before it is opened until after it is closed.
#[derive(Debug)]
pub(super) struct Counted(Process);

impl Counted {
    /// Fails in a child of a process that had connections when it forked. Says whether it is the only one.
    pub(super) fn new() -> Result<(Self, bool), &'static str> {
        // No connection of this process is counted before its first call has come here.
        if INHERITED.get_or_init(|| OPEN.load(Ordering::Relaxed)) > 0 {
            return Err(
                "this process is a fork of one that had SQLite files open, which SQLite does not allow: close all clients \
                 before the fork, or start the child with exec",
            );
        }
        Ok((Self(Process::this()), OPEN.fetch_add(1, Ordering::Relaxed) == 0))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // One that a child drops is still open in its parent.
        if self.0 == Process::this() {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
