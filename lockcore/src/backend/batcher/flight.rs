//! A sender that the only caller of a key drives itself.
//!
//! A task would be one more step on the way to the server and back. On a runtime with several threads that
//! costs more than it seems: tokio lets a thread go on with what it has just woken a few times in a row, and
//! then wakes another thread for it. As soon as there is another caller, a task has the sender: its first
//! caller may not be polled any more, and must delay nobody.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use super::sync::{Mutex, lock};

/// What a sender does.
pub(super) type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Flight(Mutex<State>);

enum State {
    /// Its caller polls it when it is woken.
    Waits(Sending),
    /// Its caller polls it at this moment, and then a task is to have it or not.
    Polled { for_task: bool },
    /// It has ended, or a task has it.
    Gone,
}

impl Flight {
    /// Its caller is about to poll it.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Polled { for_task: false })))
    }

    /// Polls a new sender. Returns it if a task is to have it.
    pub(super) fn begin(&self, sending: Sending, cx: &mut Context<'_>) -> Option<Sending> {
        self.poll_it(sending, cx)
    }

    /// Polls the sender, if the caller still has it. Returns it if a task is to have it.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Option<Sending> {
        let sending = {
            let mut state = lock(&self.0);
            let State::Waits(sending) = std::mem::replace(&mut *state, State::Polled { for_task: false })
            else {
                *state = State::Gone;
                return None;
            };
            sending
        };
        self.poll_it(sending, cx)
    }

    fn poll_it(&self, mut sending: Sending, cx: &mut Context<'_>) -> Option<Sending> {
        // Not under the mutex: it wakes callers.
        let has_ended = sending.as_mut().poll(cx).is_ready();
        let mut state = lock(&self.0);
        let is_for_task = matches!(*state, State::Polled { for_task: true });
        if has_ended || is_for_task {
            *state = State::Gone;
            drop(state);
            return (!has_ended).then_some(sending);
        }
        *state = State::Waits(sending);
        None
    }

    /// Takes the sender away from its caller, for a task. `None`: it has ended, or is polled at this moment;
    /// then the caller gives it to a task.
    pub(super) fn take(&self) -> Option<Sending> {
        let mut state = lock(&self.0);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Waits(sending) => Some(sending),
            State::Polled { .. } => {
                *state = State::Polled { for_task: true };
                None
            }
            State::Gone => None,
        }
    }
}
