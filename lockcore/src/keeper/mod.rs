//! The keeper: one thread of the process that keeps its leases alive.
//!
//! An application may block or stop its runtime; its locks must not be lost for that. So renewals, the watch over
//! deadlines and the last-resort clean-up run on a thread of their own, which does nothing else, on connections of
//! its own.

mod cleanup;
mod ward;

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;

use tokio::runtime::{Builder, Handle};

use cleanup::clean_up;
pub(crate) use cleanup::{Armed, Outcome};
pub(crate) use ward::Ward;

/// The handle of the keeper's runtime. The first call starts the thread, which lives as long as the process.
///
/// # Panics
/// If the operating system refuses a thread.
fn handle() -> &'static Handle {
    static KEEPER: OnceLock<Handle> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let (give, take) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("lockwell-keeper".into())
            .spawn(move || {
                let runtime =
                    Builder::new_current_thread().enable_all().build().expect("a runtime for the keeper");
                give.send(runtime.handle().clone()).expect("the starter waits");
                runtime.block_on(std::future::pending::<()>());
            })
            .expect("a thread for the keeper");
        take.recv().expect("the keeper's runtime starts")
    })
}

/// Runs a future on the keeper thread. It must never block.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    drop(handle().spawn(future));
}
