//! The thread that the sessions live on.
//!
//! A session must not die with the application's runtime, and must not be starved by it: its heartbeats are what keeps
//! the locks. So every session of the process is served by one thread that does nothing else. Requests may be made on
//! any runtime: they are a message to this thread, and the answer comes through a channel.

use std::future::Future;

use lockcore::Result;
use lockcore::backend::SharedRuntime;
use tokio::task::JoinHandle;

static SESSIONS: SharedRuntime = SharedRuntime::new("lockwell-zk");

/// Starts the thread, which lives as long as the process.
pub(crate) fn start() -> Result<()> {
    SESSIONS.get().map(drop)
}

/// Runs a future on the thread of the sessions. It must never block.
///
/// # Panics
/// If the operating system refuses a thread, which [`start`] has found out before.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    SESSIONS.get().expect("the thread was started on connecting").spawn(future)
}
