//! A sender that the only caller of a key drives itself, as long as it waits for one thing: the answer, which
//! may come in parts.
//!
//! A task would be one more step on the way to the server and back. On a runtime with several threads that
//! costs more than it seems: tokio lets a thread go on with what it has just woken a few times in a row, and
//! then wakes another thread for it. As soon as there is another caller, a task has the sender: its first
//! caller may not be polled any more, and must delay nobody. A task has it as well when it has more to do
//! than to take the answer: what follows must not be done late, when the caller is polled again some day.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Wake, Waker};

use crate::backend::batcher_sync::{AtomicBool, Mutex, lock};
use crate::system::wake_tasks;

/// What a sender does.
pub(super) type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Flight {
    state: Mutex<State>,
    waker: Arc<FlightWaker>,
}

/// Wakes the caller, and notes that its sender has something to do. A caller is polled for other reasons as
/// well: a release, for one, polls its request twice before it waits.
struct FlightWaker {
    is_woken: AtomicBool,
    caller: Mutex<Option<Waker>>,
}

impl Wake for FlightWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let caller = lock(&self.caller).clone();
        if let Some(caller) = caller {
            wake_tasks(|| caller.wake());
        }
    }
}

impl FlightWaker {
    /// From now on this one is woken.
    fn set(&self, caller: &Waker) {
        let mut known = lock(&self.caller);
        if known.as_ref().is_some_and(|known| known.will_wake(caller)) {
            return;
        }
        let old = known.replace(caller.clone());
        drop(known);
        // Not under the mutex: with its last waker a task is dropped.
        drop(old);
    }
}

enum State {
    /// Its caller polls it at this moment, and then a task is to have it or not.
    Polled { for_task: bool },
    /// Its caller polls it again when it is woken.
    Waits(Sending),
    /// It has ended, or a task has it.
    Gone,
}

impl Flight {
    /// Its caller is about to poll it.
    pub(super) fn new() -> Arc<Self> {
        let waker = FlightWaker { is_woken: AtomicBool::new(false), caller: Mutex::new(None) };
        Arc::new(Self { state: Mutex::new(State::Polled { for_task: false }), waker: Arc::new(waker) })
    }

    /// Polls a new sender. Returns it if a task is to have it.
    pub(super) fn begin(&self, sending: Sending, caller: &Waker) -> Option<Sending> {
        self.waker.set(caller);
        self.poll(sending, false)
    }

    /// Whether the sender has been woken. If not, it will wake this caller.
    pub(super) fn is_woken(&self, caller: &Waker) -> bool {
        // First the waker: whoever wakes in between wakes this one, or is seen.
        self.waker.set(caller);
        self.waker.is_woken.load(Ordering::SeqCst)
    }

    /// Polls the sender again, if its caller still has it. Returns it if a task is to have it: after the last
    /// poll, or since somebody else has come meanwhile.
    pub(super) fn go_on(&self, is_last: bool) -> Option<Sending> {
        let sending = {
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, State::Polled { for_task: false }) {
                State::Waits(sending) => sending,
                other => {
                    *state = other;
                    return None;
                }
            }
        };
        self.poll(sending, is_last)
    }

    fn poll(&self, mut sending: Sending, is_last: bool) -> Option<Sending> {
        // Before the poll: who wakes it afterwards is seen.
        self.waker.is_woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.waker));
        // Not under the mutex: it wakes callers.
        let has_ended = sending.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut state = lock(&self.state);
        if has_ended || is_last || matches!(*state, State::Polled { for_task: true }) {
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
        let mut state = lock(&self.state);
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
