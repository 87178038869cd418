//! How a turn `V` gets to the waiter that it is for.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::system::{lock, wake_tasks};

/// The turn of one waiter, from the moment at which it is given until the waiter picks it up.
#[derive(Debug)]
pub(crate) struct Delivery<V> {
    state: Mutex<State<V>>,
    changed: Notify,
}

#[derive(Debug)]
enum State<V> {
    Waits,
    Given(V),
    /// The waiter did not pick it up in time, or before another one took it; or it was passed over.
    TakenBack,
    /// The waiter has its turn, or has left.
    Over,
}

impl<V> Delivery<V> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::Waits), changed: Notify::new() }
    }

    /// Gives the waiter its turn. If it has left, the turn is returned.
    pub(super) fn give(&self, turn: V) -> Option<V> {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Waits) {
            return Some(turn);
        }
        *state = State::Given(turn);
        drop(state);
        wake_tasks(|| self.changed.notify_one());
        None
    }

    /// The turn goes to a later waiter. This one is woken, and queues again.
    pub(super) fn pass_over(&self) {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Waits) {
            return;
        }
        *state = State::TakenBack;
        drop(state);
        wake_tasks(|| self.changed.notify_one());
    }

    /// Waits for the turn, and picks it up. `None`: it was taken back.
    pub(super) async fn turn(&self) -> Option<V> {
        loop {
            {
                let mut state = lock(&self.state);
                match std::mem::replace(&mut *state, State::Over) {
                    State::Given(turn) => return Some(turn),
                    State::Waits => *state = State::Waits,
                    State::TakenBack | State::Over => return None,
                }
            }
            self.changed.notified().await;
        }
    }

    /// Takes back a turn that has not been picked up.
    pub(super) fn take_back(&self) -> Option<V> {
        self.take_back_if(|_| true)
    }

    /// The same, if this is true of the turn.
    pub(super) fn take_back_if(&self, fits: impl Fn(&V) -> bool) -> Option<V> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::TakenBack) {
            State::Given(turn) if fits(&turn) => Some(turn),
            other => {
                *state = other;
                None
            }
        }
    }

    pub(super) fn is_given(&self) -> bool {
        matches!(*lock(&self.state), State::Given(_))
    }

    /// Whether the turn was picked up or taken back, or the waiter has left: there is no way back from that.
    pub(super) fn is_settled(&self) -> bool {
        matches!(*lock(&self.state), State::TakenBack | State::Over)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(*lock(&self.state), State::Over)
    }

    /// The waiter leaves. A turn that it has not picked up goes to the next.
    pub(super) fn leave(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Over);
        // Outside of the lock: it is passed on when it is dropped.
        drop(state);
    }
}
