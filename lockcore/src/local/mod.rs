//! The queue of the tasks of one process, in front of the server's.
//!
//! Tasks that want the same name queue here, and one of them claims the lock at the server: the one that has
//! the *claim turn*, of which there is one for each name. It passes the turn on when it is done, at the latest by dropping
//! it: so a task that is cancelled anywhere does not delay the others.
//!
//! The queue does not depend on locks: what a task hands to the next beside the turn, a held lock, is its parameter `T`.

mod claim_turn;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::system::lock;
use crate::{Claim, HandOver, LockName, Wait};

pub(crate) use claim_turn::ClaimTurn;

/// The queues of one client.
#[derive(Debug)]
pub(crate) struct LocalQueues<T> {
    hand_over: Option<HandOver>,
    names: Mutex<Names<T>>,
}

#[derive(Debug)]
struct Names<T> {
    queues: HashMap<LockName, Queue<T>>,
    /// Numbers turns and waiters. The number distinguishes a turn that has been passed on from the new one.
    last: u64,
}

impl<T> Names<T> {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The queue for a name. It exists while a task has the claim turn.
#[derive(Debug)]
struct Queue<T> {
    turn: u64,
    waiters: BTreeMap<u64, Waiter<T>>,
}

/// A task in the queue.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    pub(crate) claim: Claim,
    gets: oneshot::Sender<Turn<T>>,
}

/// What a waiter gets.
#[derive(Debug)]
pub(crate) enum Turn<T> {
    /// The turn to claim the lock at the server.
    Claim(ClaimTurn<T>),
    /// The lock itself.
    Handed(T),
}

impl<T> Waiter<T> {
    /// Whether the waiter has left: its request was dropped, even if its task has not run yet.
    pub(crate) fn has_gone(&self) -> bool {
        self.claim.is_cancelled() || self.gets.is_closed()
    }

    /// Hands the waiter its turn. If it has left, the turn is returned.
    pub(crate) fn give(self, turn: Turn<T>) -> Result<(), Turn<T>> {
        self.gets.send(turn)
    }
}

impl<T> LocalQueues<T> {
    pub(crate) fn new(hand_over: Option<HandOver>) -> Arc<Self> {
        Arc::new(Self { hand_over, names: Mutex::new(Names { queues: HashMap::new(), last: 0 }) })
    }

    pub(crate) fn hand_over(&self) -> Option<HandOver> {
        self.hand_over
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.names).queues.is_empty()
    }

    /// Waits for the turn of this claim; `None` when its wait is over.
    pub(crate) async fn turn(self: &Arc<Self>, claim: &Claim) -> Option<Turn<T>> {
        let (number, mut turn) = {
            let mut names = lock(&self.names);
            let number = names.number();
            match names.queues.get_mut(claim.name()) {
                None => {
                    let queue = Queue { turn: number, waiters: BTreeMap::new() };
                    names.queues.insert(claim.name().clone(), queue);
                    return Some(Turn::Claim(ClaimTurn::new(self, claim.name(), number)));
                }
                Some(_) if claim.wait() == Wait::No => return None,
                Some(queue) => {
                    let (sender, receiver) = oneshot::channel();
                    let waiter = Waiter { claim: claim.clone(), gets: sender };
                    queue.waiters.insert(number, waiter);
                    (number, receiver)
                }
            }
        };
        claim.note_waiting();
        let entry = QueueEntry { queues: self, name: claim.name(), number };
        let turn = tokio::select! {
            biased;
            turn = &mut turn => turn.ok(),
            // A turn that comes at this moment is dropped with the channel, and so goes to the next.
            () = claim.wait_over() => None,
        };
        drop(entry);
        if turn.is_some() {
            claim.begin_now();
        }
        turn
    }

    /// Moves the claim turn to the first waiter, if the turn has this number and the waiter fits.
    fn next(&self, name: &LockName, turn: u64, fits: impl Fn(&Waiter<T>) -> bool) -> Next<T> {
        let mut names = lock(&self.names);
        let number = names.number();
        let Some(queue) = names.queues.get_mut(name).filter(|queue| queue.turn == turn) else {
            return Next::Gone;
        };
        let Some(first) = queue.waiters.first_entry() else { return Next::Nobody };
        if !fits(first.get()) {
            return Next::Other;
        }
        let waiter = first.remove();
        queue.turn = number;
        Next::Waiter(number, waiter)
    }

    /// Gives the claim turn back: the first waiter gets it.
    fn pass_on(self: &Arc<Self>, name: &LockName, mut turn: u64) {
        loop {
            match self.next(name, turn, |_| true) {
                // A loop, since a chain of drops could be as long as the queue.
                Next::Waiter(number, waiter) if waiter.has_gone() => turn = number,
                Next::Waiter(number, waiter) => {
                    match waiter.give(Turn::Claim(ClaimTurn::new(self, name, number))) {
                        // It has left at this moment.
                        Err(Turn::Claim(unwanted)) => turn = unwanted.into_number(),
                        _ => return,
                    }
                }
                Next::Nobody => {
                    let mut names = lock(&self.names);
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
    /// The number of the turn, and who has it now.
    Waiter(u64, Waiter<T>),
}

/// A waiter in the queue. Dropping it removes the waiter.
struct QueueEntry<'a, T> {
    queues: &'a LocalQueues<T>,
    name: &'a LockName,
    number: u64,
}

impl<T> Drop for QueueEntry<'_, T> {
    fn drop(&mut self) {
        let waiter = {
            let mut names = lock(&self.queues.names);
            names.queues.get_mut(self.name).and_then(|queue| queue.waiters.remove(&self.number))
        };
        // Outside of the lock: a channel may hold what takes the lock when it is dropped.
        drop(waiter);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
