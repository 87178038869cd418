//! The end of what the library still does in the background.
//!
//! A claim that is given up leaves its queue in the background. A process that ends at once would cut that off, and
//! the dead claim would hold up the queue until the server notices.

use std::time::Duration;

use tokio::runtime::Handle;

/// The longest wait. After that, what is left ends with its lease.
const LIMIT: Duration = Duration::from_secs(1);

/// The tasks that were alive before a claim was made.
#[derive(Clone, Copy)]
pub(crate) struct Baseline(usize);

impl Baseline {
    pub(crate) fn take() -> Self {
        Self(alive())
    }

    /// Waits until no more tasks are alive than then.
    pub(crate) async fn settle(self) {
        let gone = async {
            while alive() > self.0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(LIMIT, gone).await.is_err() {
            tracing::info!("a task goes on in the background; it is left behind");
        }
    }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
