//! The thread that all sessions of the process run on.

use lockwell_core::backend::SharedRuntime;

/// The thread that serves the sessions.
///
/// A session must not depend on the application's runtime, since its heartbeats keep the locks. So one
/// separate thread serves all sessions of the process. Requests can be made on any runtime: each is a message
/// to this thread, and the answer comes through a channel.
pub(crate) static SESSIONS: SharedRuntime = SharedRuntime::new("lockwell-zk");
