//! The turn of one waiter, and what is done when the store is not locked any more.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::system::wake_tasks;
use crate::{Claim, Error, ErrorKind, Grant, Result};

/// The turn of one waiter. The store decides about it while it is locked; the waiter is woken afterwards.
#[derive(Default)]
pub(super) struct WaiterTurn {
    /// `None`: its claim was taken out of the queue.
    outcome: OnceLock<Option<Grant>>,
    changed: Notify,
}

impl WaiterTurn {
    /// Its claim is not in the queue any more.
    pub(super) fn end(&self, grant: Option<Grant>) {
        self.outcome.get_or_init(|| grant);
    }

    /// The grant, if there is one.
    pub(super) fn grant(&self) -> Option<Grant> {
        self.outcome()?.ok()
    }

    /// What has become of the claim; `None` while it waits.
    pub(super) fn outcome(&self) -> Option<Result<Grant>> {
        let taken_out = || Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue");
        self.outcome.get().map(|grant| grant.clone().ok_or_else(taken_out))
    }

    /// Resolves when there is something new: the outcome, or another lease to watch.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// What is done when the store is not locked any more. Wakers are code of the application, and a claim may
/// pass its turn in the queue of the process on when it is dropped, which wakes a task, too.
#[derive(Default)]
pub(super) struct Afterwards {
    pub(super) wakes: Vec<Arc<WaiterTurn>>,
    pub(super) drops: Vec<Claim>,
}

impl Afterwards {
    pub(super) fn run(self) {
        for turn in self.wakes {
            wake_tasks(|| turn.changed.notify_one());
        }
        // The claims are dropped here, with `self`.
    }
}
