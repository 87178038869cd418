//! The queue of the tasks of one process, in front of the server's.
//!
//! Tasks that want the same name line up here, and one of them stands for all at the server. Who that is, is decided
//! by the *right to claim*, of which there is one for each name. It is passed on when its owner is done with it, by
//! being dropped at the latest: so a task that is cancelled anywhere does not hold up the others.

mod baton;
mod hand_over;
mod right;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::sync::lock;
use crate::{Claim, LockName, Wait};

pub(crate) use baton::{Baton, Pass};
pub use hand_over::HandOver;
pub(crate) use right::Right;

/// The queues of one client.
#[derive(Debug)]
pub(crate) struct LocalQueues {
    hand_over: Option<HandOver>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    queues: HashMap<LockName, Queue>,
    /// Numbers rights and waiters. A right that has been passed on is told from the new one by its number.
    last: u64,
}

impl Names {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The queue for a name. It exists while somebody has the right to claim.
#[derive(Debug)]
struct Queue {
    right: u64,
    waiters: BTreeMap<u64, Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ttl: Duration,
    rest: Duration,
    turn: oneshot::Sender<Turn>,
}

/// What a waiter gets.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The right to claim the lock at the server.
    Claim(Right),
    /// The lock itself.
    Baton(Baton),
}

impl LocalQueues {
    pub(crate) fn new(hand_over: Option<HandOver>) -> Arc<Self> {
        Arc::new(Self { hand_over, names: Mutex::default() })
    }

    pub(crate) fn hand_over(&self) -> Option<HandOver> {
        self.hand_over
    }

    /// Waits for the turn of this claim; `None` when it is not worth waiting for any more.
    pub(crate) async fn turn(self: &Arc<Self>, claim: &Claim) -> Option<Turn> {
        let (number, mut turn) = {
            let mut names = lock(&self.names);
            let number = names.number();
            match names.queues.get_mut(claim.name()) {
                None => {
                    let queue = Queue { right: number, waiters: BTreeMap::new() };
                    names.queues.insert(claim.name().clone(), queue);
                    return Some(Turn::Claim(Right::new(self, claim.name(), number)));
                }
                Some(_) if claim.wait() == Wait::No => return None,
                Some(queue) => {
                    let (give, take) = oneshot::channel();
                    let waiter = Waiter { ttl: claim.ttl(), rest: claim.rest(), turn: give };
                    queue.waiters.insert(number, waiter);
                    (number, take)
                }
            }
        };
        let place = Place { queues: self, name: claim.name(), number };
        let turn = tokio::select! {
            biased;
            turn = &mut turn => turn.ok(),
            // A turn that comes in this moment is dropped with the channel, and so goes to the next.
            () = claim.given_up() => None,
        };
        drop(place);
        if turn.is_some() {
            claim.begin_now();
        }
        turn
    }

    /// Moves the right to claim to the first waiter, if the right has this number and the waiter fits.
    fn next(&self, name: &LockName, right: u64, fits: impl Fn(&Waiter) -> bool) -> Next {
        let mut names = lock(&self.names);
        let number = names.number();
        let Some(queue) = names.queues.get_mut(name).filter(|queue| queue.right == right) else {
            return Next::Gone;
        };
        let Some(first) = queue.waiters.first_entry() else { return Next::Nobody };
        if !fits(first.get()) {
            return Next::Other;
        }
        let waiter = first.remove();
        queue.right = number;
        Next::Waiter(number, waiter.turn)
    }

    /// Gives the right to claim back: the first waiter gets it.
    fn leave(self: &Arc<Self>, name: &LockName, mut right: u64) {
        loop {
            match self.next(name, right, |_| true) {
                Next::Waiter(number, turn) => match turn.send(Turn::Claim(Right::new(self, name, number))) {
                    // The waiter has gone. A loop, since a chain of drops could be as long as the queue.
                    Err(Turn::Claim(unwanted)) => right = unwanted.into_number(),
                    _ => return,
                },
                Next::Nobody => {
                    let mut names = lock(&self.names);
                    // Somebody may have come in between.
                    let idle = |queue: &Queue| queue.right == right && queue.waiters.is_empty();
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

/// Who comes next.
enum Next {
    /// This right is not the valid one any more.
    Gone,
    /// Nobody waits.
    Nobody,
    /// Somebody who wants something else.
    Other,
    /// The number of the right, and how to reach the one who has it now.
    Waiter(u64, oneshot::Sender<Turn>),
}

/// A waiter's place. Dropping it leaves the queue.
struct Place<'a> {
    queues: &'a LocalQueues,
    name: &'a LockName,
    number: u64,
}

impl Drop for Place<'_> {
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

#[cfg(test)]
mod orders;
