//! The queues, and the turn to claim.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::delivery::Delivery;
use super::pulse::{Pulse, Seen};
use crate::lease::PassOn;
use crate::system::lock;
use crate::{Claim, HandOver, LockName, Moment, Wait};

/// The queues of one client.
#[derive(Debug)]
pub(crate) struct LocalQueues<T> {
    hand_over: Option<HandOver>,
    pub(super) names: Mutex<Names<T>>,
}

#[derive(Debug)]
pub(super) struct Names<T> {
    pub(super) queues: HashMap<LockName, Queue<T>>,
    /// Numbers turns and waiters. The number distinguishes a turn that has been passed on from the new one.
    last: u64,
    /// Whether a task of the keeper looks at the turns.
    pub(super) watched: bool,
}

impl<T> Names<T> {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The queue for a name. It exists while a task has the claim turn.
#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) turn: u64,
    /// Whether the claim of the task that has the turn is driven.
    pub(super) pulse: Arc<Pulse>,
    pub(super) seen: Seen,
    /// When the turn was given to a waiter that may not have picked it up.
    pub(super) given: Option<(Moment, Arc<Delivery<Turn<T>>>)>,
    pub(super) waiters: BTreeMap<u64, LocalWaiter<T>>,
}

impl<T> Queue<T> {
    fn new(turn: u64, now: Moment) -> Self {
        let (pulse, waiters) = (Arc::default(), BTreeMap::new());
        Self { turn, pulse, seen: Seen::new(now), given: None, waiters }
    }

    /// The turn gets this number, and goes to this waiter.
    fn move_on(&mut self, turn: u64, waiter: &LocalWaiter<T>) {
        let now = waiter.claim.clock().now();
        (self.turn, self.pulse, self.seen) = (turn, Arc::default(), Seen::new(now));
        self.given = Some((now, Arc::clone(&waiter.delivery)));
    }
}

/// A task in the queue.
#[derive(Debug)]
pub(crate) struct LocalWaiter<T> {
    pub(crate) claim: Claim,
    delivery: Arc<Delivery<Turn<T>>>,
}

/// What a waiter gets.
#[derive(Debug)]
pub(crate) enum Turn<T> {
    /// The turn to claim the lock at the server.
    Claim(ClaimTurn<T>),
    /// The lock itself.
    Handed(T),
}

impl<T> LocalWaiter<T> {
    /// Whether the waiter has left: its request was dropped, even if its task has not run yet.
    pub(crate) fn has_gone(&self) -> bool {
        self.claim.is_cancelled() || self.delivery.is_over()
    }

    /// Hands the waiter its turn. If it has left, the turn is returned.
    pub(crate) fn give(self, turn: Turn<T>) -> Result<(), Turn<T>> {
        self.delivery.give(turn)
    }
}

impl<T> LocalQueues<T> {
    pub(crate) fn new(hand_over: Option<HandOver>) -> Arc<Self> {
        let names = Names { queues: HashMap::new(), last: 0, watched: false };
        Arc::new(Self { hand_over, names: Mutex::new(names) })
    }

    pub(crate) fn hand_over(&self) -> Option<HandOver> {
        self.hand_over
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names<T>> {
        lock(&self.names)
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.names().queues.is_empty()
    }

    /// Moves the claim turn to the first waiter, if the turn has this number and the waiter fits.
    fn next(self: &Arc<Self>, name: &LockName, turn: u64, fits: impl Fn(&LocalWaiter<T>) -> bool) -> Next<T> {
        let mut names = self.names();
        let number = names.number();
        let Some(queue) = names.queues.get_mut(name).filter(|queue| queue.turn == turn) else {
            return Next::Gone;
        };
        let Some(first) = queue.waiters.first_entry() else { return Next::Nobody };
        if !fits(first.get()) {
            return Next::Other;
        }
        let waiter = first.remove();
        queue.move_on(number, &waiter);
        let turn = ClaimTurn::new(self, name, number, &queue.pulse);
        Next::LocalWaiter(turn, waiter)
    }

    /// Gives the claim turn back: the first waiter gets it.
    pub(super) fn pass_on(self: &Arc<Self>, name: &LockName, mut turn: u64) {
        loop {
            match self.next(name, turn, |_| true) {
                // A loop, since a chain of drops could be as long as the queue.
                Next::LocalWaiter(next, waiter) if waiter.has_gone() => turn = next.into_number(),
                Next::LocalWaiter(next, waiter) => match waiter.give(Turn::Claim(next)) {
                    // It has left at this moment.
                    Err(Turn::Claim(unwanted)) => turn = unwanted.into_number(),
                    _ => return,
                },
                Next::Nobody => {
                    let mut names = self.names();
                    // Another may have come in between.
                    let idle = |queue: &Queue<T>| queue.turn == turn && queue.waiters.is_empty();
                    if !names.queues.get(name).is_some_and(idle) {
                        continue;
                    }
                    names.queues.remove(name);
                    return;
                }
                Next::Gone | Next::Other => return,
            }
        }
    }
}

/// The next one in the queue.
enum Next<T> {
    /// This turn is not the valid one any more.
    Gone,
    /// Nobody waits.
    Nobody,
    /// The first waiter does not fit.
    Other,
    /// The turn, and who is to get it.
    LocalWaiter(ClaimTurn<T>, LocalWaiter<T>),
}

/// What a claim finds in the queue of its name.
enum Entered<T> {
    /// Nobody has the turn, so it is this claim's.
    Turn(ClaimTurn<T>),
    /// Another has it, and this claim does not wait.
    Refused,
    Waits(Arc<Delivery<Turn<T>>>),
}

impl<T: Send + 'static> LocalQueues<T> {
    /// Waits for the turn of this claim; `None` when its wait is over.
    pub(crate) async fn turn(self: &Arc<Self>, claim: &Claim) -> Option<Turn<T>> {
        let mut number = None;
        loop {
            let delivery = match self.enter(claim, &mut number) {
                Entered::Turn(turn) => return Some(Turn::Claim(turn)),
                Entered::Refused => return None,
                Entered::Waits(delivery) => delivery,
            };
            claim.note_waiting();
            let entry = QueueEntry { queues: self, name: claim.name(), number: number?, delivery: &delivery };
            let turn = tokio::select! {
                biased;
                turn = delivery.turn() => turn,
                // A turn that comes at this moment goes to the next, with the entry.
                () = claim.wait_over() => return None,
            };
            drop(entry);
            if turn.is_some() {
                claim.begin_now();
                return turn;
            }
            // It was taken back, since nobody has polled this for a while. This is still the first of those
            // that wait.
        }
    }

    /// Takes the turn if nobody has it, or a place in the queue, which keeps its number.
    fn enter(self: &Arc<Self>, claim: &Claim, number: &mut Option<u64>) -> Entered<T> {
        let mut names = self.names();
        let at = *number.get_or_insert_with(|| names.number());
        let turn = names.number();
        let Some(queue) = names.queues.get_mut(claim.name()) else {
            let queue = Queue::new(turn, claim.clock().now());
            let claim_turn = ClaimTurn::new(self, claim.name(), turn, &queue.pulse);
            names.queues.insert(claim.name().clone(), queue);
            return Entered::Turn(claim_turn);
        };
        if claim.wait() == Wait::No {
            return Entered::Refused;
        }
        let delivery = Arc::new(Delivery::new());
        queue.waiters.insert(at, LocalWaiter { claim: claim.clone(), delivery: Arc::clone(&delivery) });
        if !std::mem::replace(&mut names.watched, true) {
            drop(names);
            self.begin_to_watch(claim.clock());
        }
        Entered::Waits(delivery)
    }
}

/// A waiter in the queue. Dropping it removes the waiter.
struct QueueEntry<'a, T> {
    queues: &'a LocalQueues<T>,
    name: &'a LockName,
    number: u64,
    delivery: &'a Delivery<Turn<T>>,
}

impl<T> Drop for QueueEntry<'_, T> {
    fn drop(&mut self) {
        let waiter = {
            let mut names = self.queues.names();
            names.queues.get_mut(self.name).and_then(|queue| queue.waiters.remove(&self.number))
        };
        // Outside of the lock, which a turn takes when it is dropped.
        drop(waiter);
        self.delivery.leave();
    }
}

/// The turn to claim a name at the server for all of this process. Dropping it passes it on.
pub(crate) struct ClaimTurn<T> {
    queues: Arc<LocalQueues<T>>,
    name: LockName,
    number: u64,
    pulse: Arc<Pulse>,
}

impl<T> ClaimTurn<T> {
    pub(super) fn new(
        queues: &Arc<LocalQueues<T>>,
        name: &LockName,
        number: u64,
        pulse: &Arc<Pulse>,
    ) -> Self {
        Self { queues: Arc::clone(queues), name: name.clone(), number, pulse: Arc::clone(pulse) }
    }

    /// What shows whether somebody drives the claim.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// The lock is held from now on.
    pub(crate) fn note_held(&self) {
        self.pulse.note_held();
    }

    /// How often a lock may be handed on, if it may.
    pub(crate) fn hand_over(&self) -> Option<HandOver> {
        self.queues.hand_over()
    }

    /// Moves the turn to the first waiter, if that one fits. The answer is the new turn and who is to get it.
    pub(crate) fn to_first(&self, fits: impl Fn(&LocalWaiter<T>) -> bool) -> Option<(Self, LocalWaiter<T>)> {
        match self.queues.next(&self.name, self.number, fits) {
            Next::LocalWaiter(turn, waiter) => Some((turn, waiter)),
            Next::Gone | Next::Nobody | Next::Other => None,
        }
    }

    /// Returns the number without passing the turn on: zero is no valid number.
    pub(super) fn into_number(mut self) -> u64 {
        std::mem::replace(&mut self.number, 0)
    }
}

impl<T: Send> PassOn for ClaimTurn<T> {
    fn pass_on(&self) {
        self.queues.pass_on(&self.name, self.number);
    }
}

impl<T> Drop for ClaimTurn<T> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.queues.pass_on(&self.name, self.number);
        }
    }
}

impl<T> fmt::Debug for ClaimTurn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimTurn")
            .field("name", &self.name)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
