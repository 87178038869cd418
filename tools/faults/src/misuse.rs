//! Bad habits of applications, which some scenarios give to their workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::plan::{Misuse, Work};

/// What goes on until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Disturbance {
    stop: Arc<AtomicBool>,
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Begins the misuse of this worker on its runtime, if it is one of the runtime.
/// [`strangers`](super::strangers) has those that hold locks.
pub(super) fn begin(work: &Work) -> Disturbance {
    let disturbance = Disturbance::default();
    if work.crew.misuse == Misuse::StarvesRuntime {
        for _ in 0..Handle::current().metrics().num_workers() {
            let stop = Arc::clone(&disturbance.stop);
            drop(tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    // It blocks the thread without using up the machine, which others need.
                    std::thread::sleep(Duration::from_millis(25));
                    tokio::task::yield_now().await;
                }
            }));
        }
    }
    disturbance
}

/// Stops this process. Whoever watches it lets it go on.
pub(super) fn stop_this_process() -> Result<()> {
    kill_process(getpid(), Signal::STOP).map_err(|errno| Error::failed(format!("SIGSTOP: {errno}")))
}
