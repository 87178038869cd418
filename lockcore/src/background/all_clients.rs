//! All clients of the process.

use std::sync::{Arc, Mutex, Weak};

use super::book::Book;
use crate::system::{PerProcess, lock};
use crate::{DistributedLock, Result};

/// A forked child begins without those of its parent, which are not in it.
static ALL: PerProcess<Arc<Mutex<Vec<Weak<Book>>>>> = PerProcess::new();

impl Book {
    /// A client begins. Fails if the keeper thread cannot be started.
    pub(crate) fn start(backend: Arc<dyn DistributedLock>) -> Result<Arc<Self>> {
        let book = Self::new(backend)?;
        let all = ALL.get_or_init(Arc::default);
        let mut all = lock(&all);
        // Before it grows: a program may make clients again and again.
        if all.len() == all.capacity() {
            all.retain(|client| client.strong_count() > 0);
        }
        all.push(Arc::downgrade(&book));
        Ok(book)
    }
}

/// Waits until no client of this process has releases under way. Those of dropped guards, of dropped requests
/// and of clients that were dropped are among them.
///
/// It is for a program that ends and no longer has its clients, such as the hook of an interpreter at its
/// exit; otherwise use [`close`](crate::Locks::close). The clients stay open, and a release that begins
/// meanwhile may be waited for or not. Give it a limit: while a lock server does not answer, this lasts for as
/// long as the longest lease, and while other tasks wait behind a dropped request, for as long as they wait.
/// With a [`TestServer`](crate::testing::TestServer), whose clock stands still, a delayed release may never
/// end.
///
/// # Cancel safety
/// Dropping the future changes nothing.
///
/// # Examples
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// let locks = lockwell::Locks::in_memory();
/// drop(locks.lock("orders/42").await?);
/// lockwell::wait_for_releases().await;
/// assert!(locks.inspect("orders/42").await?.is_free());
/// # Ok(()) }
/// ```
pub async fn wait_for_releases() {
    let all = ALL.get_or_init(Arc::default);
    let clients = lock(&all).clone();
    for client in clients {
        if let Some(book) = client.upgrade() {
            book.settled().await;
        }
    }
}
