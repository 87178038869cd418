//! The acquires of one client that are under way, which a close cancels.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use slab::Slab;
use tokio::sync::Notify;

use crate::system::{lock, wake_tasks};
use crate::{Claim, Error, ErrorKind, Result};

/// The acquires of one client that are under way.
#[derive(Debug, Default)]
pub(super) struct Acquires {
    closed: AtomicBool,
    claims: Mutex<Slab<Claim>>,
    /// Notified when an acquire ends after the close.
    ended: Notify,
}

impl Acquires {
    /// Refuses requests after the close.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "this client was closed"));
        }
        Ok(())
    }

    /// An acquire begins. It is refused after the close.
    pub(super) fn enter(self: &Arc<Self>, claim: &Claim) -> Result<AcquireEntry> {
        let mut claims = lock(&self.claims);
        // Under the mutex: a close comes either before this, or finds the claim on the list.
        self.check_open()?;
        Ok(AcquireEntry { acquires: Arc::clone(self), key: claims.insert(claim.clone()) })
    }

    /// Cancels all acquires, and refuses new ones.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Copied: to cancel a claim wakes a task of the application.
        for claim in self.left() {
            claim.cancel();
        }
    }

    /// The claims of those that have not ended.
    pub(super) fn left(&self) -> Vec<Claim> {
        lock(&self.claims).iter().map(|(_, claim)| claim.clone()).collect()
    }

    /// Waits until all have ended.
    pub(super) async fn drained(&self) {
        loop {
            let ended = self.ended.notified();
            if lock(&self.claims).is_empty() {
                return;
            }
            ended.await;
        }
    }
}

/// An acquire that is under way until this is dropped: its guard exists, or its release is on the list of
/// those under way, or the claim holds nothing.
#[derive(Debug)]
pub(crate) struct AcquireEntry {
    acquires: Arc<Acquires>,
    key: usize,
}

impl Drop for AcquireEntry {
    fn drop(&mut self) {
        drop(lock(&self.acquires.claims).try_remove(self.key));
        if self.acquires.closed.load(Ordering::Acquire) {
            wake_tasks(|| self.acquires.ended.notify_waiters());
        }
    }
}
