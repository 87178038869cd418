//! The end of what the library still does in the background.
//!
//! A claim that is given up leaves its queue in the background. A process that ends at once would cut that off, and
//! the dead claim would hold up the queue until the server notices.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// The longest wait for the background. After that, what is left ends with its lease.
const LIMIT: Duration = Duration::from_secs(1);

/// How often the tasks are counted while waiting for a lock.
const OFTEN: Duration = Duration::from_millis(10);
const RARELY: Duration = Duration::from_millis(250);

/// How many background tasks there are while a claim waits. More than that are there to clean up.
pub(crate) struct Background {
    usual: usize,
    pause: Duration,
}

impl Background {
    pub(crate) fn new() -> Self {
        Self { usual: alive(), pause: OFTEN }
    }

    /// Goes on counting for as long as it is polled: the library starts helpers of its own when a claim queues.
    ///
    /// # Cancel safety
    /// Cancel safe: the last count stays.
    pub(crate) async fn watch(&mut self) {
        loop {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(RARELY);
            self.usual = alive();
        }
    }

    /// Waits until the claim has been cleaned up.
    pub(crate) async fn settle(self) {
        let gone = async {
            while alive() > self.usual {
                sleep(Duration::from_millis(2)).await;
            }
        };
        if timeout(LIMIT, gone).await.is_err() {
            tracing::info!("a task goes on in the background; it is left behind");
        }
    }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
