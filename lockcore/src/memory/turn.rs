//! The turn of one waiter, and what is done when the store is not locked any more.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::system::{lock, wake_tasks};
use crate::{Claim, Error, ErrorKind, Grant, Result};

/// The turn of one waiter. The store decides about it while it is locked; the waiter is woken afterwards.
pub(super) struct WaiterTurn {
    state: Mutex<State>,
    changed: Notify,
}

enum State {
    Waits,
    Granted(Grant),
    /// Its claim is not in the queue any more.
    TakenOut,
}

impl WaiterTurn {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Waits), changed: Notify::new() })
    }

    pub(super) fn set_granted(&self, grant: Grant) {
        *lock(&self.state) = State::Granted(grant);
    }

    pub(super) fn set_taken_out(&self) {
        *lock(&self.state) = State::TakenOut;
    }

    /// The grant, if there is one.
    pub(super) fn grant(&self) -> Option<Grant> {
        self.outcome()?.ok()
    }

    /// What has become of the claim; `None` while it waits.
    pub(super) fn outcome(&self) -> Option<Result<Grant>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::TakenOut) {
            State::Granted(grant) => Some(Ok(grant)),
            State::TakenOut => {
                Some(Err(Error::new(ErrorKind::NotHeld, "the claim was taken out of the queue")))
            }
            State::Waits => {
                *state = State::Waits;
                None
            }
        }
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
