//! The thread that the sessions live on.
//!
//! A session must not die with the application's runtime, and must not be starved by it: its heartbeats are what keeps
//! the locks. So every session of the process is served by one thread that does nothing else. Requests may be made on
//! any runtime: they are a message to this thread, and the answer comes through a channel.

use std::future::Future;
use std::sync::{OnceLock, mpsc};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// The handle of the thread's runtime. The first call starts the thread, which lives as long as the process.
///
/// # Panics
/// If the operating system refuses a thread.
fn handle() -> &'static Handle {
    static THREAD: OnceLock<Handle> = OnceLock::new();
    THREAD.get_or_init(|| {
        let (give, take) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("lockwell-zk".into())
            .spawn(move || {
                let runtime =
                    Builder::new_current_thread().enable_all().build().expect("a runtime for the sessions");
                give.send(runtime.handle().clone()).expect("the starter waits");
                runtime.block_on(std::future::pending::<()>());
            })
            .expect("a thread for the sessions");
        take.recv().expect("the runtime of the sessions starts")
    })
}

/// Runs a future on the thread of the sessions. It must never block.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    handle().spawn(future)
}
