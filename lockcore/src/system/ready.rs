//! What a process makes once, and its forked children share.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use tokio::runtime::Builder;

use super::forward;

/// Makes what this crate and its dependencies make once, at their first use, and which a forked child inherits. A
/// thread that makes it during a fork would let the child wait for ever.
///
/// It is for a library in an interpreter, whose programs fork while they have threads: call it when the library is
/// loaded. See [`note_fork`](super::note_fork).
pub fn make_ready() {
    forward::make_ready();
    // The seed of all hash tables.
    drop(HashSet::<u8, RandomState>::default());
    // With the feature "signal", the first runtime of the process makes the pipe for signals.
    drop(Builder::new_current_thread().enable_all().build());
}
