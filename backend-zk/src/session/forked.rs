//! Refuses ZooKeeper in a forked child whose parent had a client.
//!
//! The client crate does its input and output on a thread of its own, `async-io`, which it starts once. A
//! forked child has its state, but not the thread, and its descriptor of epoll is that of the parent: events
//! of the child's connections would reach the parent, and events of the parent's sessions the child.

use std::sync::atomic::{AtomicU64, Ordering};

use lockwell_core::backend::{Error, ErrorKind, Process, Result};

/// The number of the first process that had a client; 0: none had.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Fails in a child of a process that had a client before the fork, whether it is closed or not.
pub(crate) fn check() -> Result<()> {
    let process = Process::this().number();
    match FIRST.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => return Ok(()),
        Err(first) if first == process => return Ok(()),
        Err(_) => (),
    }
    let text = "this process is a fork of one that had a client of ZooKeeper, whose threads it does not have: make the \
                parent's first client after the fork, or start the child with exec";
    Err(Error::new(ErrorKind::Misconfigured, text))
}
