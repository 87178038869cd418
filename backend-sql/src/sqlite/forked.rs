//! Refuses SQLite in a forked child whose parent had files open.
//!
//! SQLite notes for the whole process which file it has locked. A forked child inherits these notes, but not
//! the locks, so it would take part in no exclusion: "How To Corrupt An SQLite Database File", section 2.6,
//! forbids it.

use std::sync::{Mutex, MutexGuard};

use lockwell_core::backend::lock;

#[derive(Debug)]
struct Open {
    process: u32,
    connections: usize,
}

static OPEN: Mutex<Open> = Mutex::new(Open { process: 0, connections: 0 });

fn open() -> MutexGuard<'static, Open> {
    lock(&OPEN)
}

/// A connection of this process, from before it is opened until after it is closed.
#[derive(Debug)]
pub(super) struct Counted(u32);

impl Counted {
    /// Fails in a child of a process that had connections when it forked. Says whether it is the only one.
    pub(super) fn new() -> Result<(Self, bool), &'static str> {
        let process = std::process::id();
        let mut open = open();
        if open.process != process && open.connections > 0 {
            return Err(
                "this process is a fork of one that had SQLite files open, which SQLite does not allow: close all clients \
                 before the fork, or start the child with exec",
            );
        }
        *open = Open { process, connections: open.connections + 1 };
        Ok((Self(process), open.connections == 1))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = open();
        // One that a child drops is still open in its parent.
        if open.process == self.0 && std::process::id() == self.0 {
            open.connections -= 1;
        }
    }
}
