//! The thread of the operations.

use lockwell::backend::SharedRuntime;

/// The thread that drives the operations of all clients of the process. Renewals have another one, that of
/// the library.
pub(crate) static RUNTIME: SharedRuntime = SharedRuntime::new("lockwell-python");
