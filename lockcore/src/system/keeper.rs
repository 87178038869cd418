//! The keeper's thread.

use super::own_runtime::SharedRuntime;

/// The thread on which leases are renewed and releases are finished: one for each process.
pub static KEEPER: SharedRuntime = SharedRuntime::new("lockwell-keeper");
