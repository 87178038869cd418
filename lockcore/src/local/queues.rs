//! The queues of one client, and the turn to claim a name.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::handed_lock::HandedLock;
use super::names::{First, LocalWaiter, Names, Queue, Recipient};
use super::pulse::Pulse;
use super::sharing::Sharing;
use crate::contract::PassOn;
use crate::system::lock;
use crate::{Claim, LockName, Moment};

/// The queues of one client.
#[derive(Debug)]
pub(crate) struct LocalQueues {
    sharing: Sharing,
    pub(super) names: Mutex<Names<Turn>>,
    /// Notified when the keeper is to look earlier than it intends to.
    pub(super) look_earlier: Notify,
}

/// What a waiter gets.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The turn to claim the lock at the server.
    Claim(ClaimTurn),
    /// The turn, and the lock itself, whose claim has the turn.
    Handed(Arc<ClaimTurn>, HandedLock),
    /// No turn: it asks the server beside the others.
    Beside,
}

/// What the next one gets.
#[derive(Clone, Copy)]
enum Move {
    /// The turn alone. If nobody waits, it ends.
    Turn,
    /// The turn and the lock. If nobody waits, the turn stays where it is.
    Lock,
}

/// The next one in the queue.
enum Next {
    /// This turn is not the valid one any more.
    Gone,
    /// Nobody waits.
    Nobody,
    /// The first waiter does not fit.
    Other,
    /// The turn, and who is to get it.
    LocalWaiter(ClaimTurn, Recipient<Turn>),
}

impl LocalQueues {
    pub(crate) fn new(sharing: Sharing) -> Arc<Self> {
        Arc::new(Self { sharing, names: Mutex::default(), look_earlier: Notify::new() })
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names<Turn>> {
        lock(&self.names)
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.names().queues.is_empty()
    }

    /// Moves the claim turn to the first waiter, if the turn has this number and the waiter fits. If several
    /// in a row have not picked it up, the first ones are passed over.
    fn next(
        self: &Arc<Self>,
        name: &LockName,
        turn: u64,
        misses: u32,
        fits: impl Fn(&LocalWaiter<Turn>) -> bool,
        what: Move,
    ) -> Next {
        // Dropped after the guard of the mutex, which comes after it.
        let mut gone = Vec::new();
        let mut names = self.names();
        let number = names.number();
        let Some(queue) = names.with_turn(name, turn) else { return Next::Gone };
        let recipient = match queue.first(misses, &mut gone, fits) {
            First::LocalWaiter(recipient) => recipient,
            First::Other => return Next::Other,
            First::Nobody => {
                if let Move::Turn = what {
                    let ended = queue.end_claiming();
                    let queue = names.queues.remove(name);
                    drop(names);
                    ended.inspect(Claim::ring);
                    drop(queue);
                }
                return Next::Nobody;
            }
        };
        match what {
            Move::Turn => queue.begin_slice(),
            Move::Lock => queue.handed_on[0] += 1,
        }
        let ended = queue.end_claiming();
        let by = queue.move_on(number, &recipient);
        let turn = ClaimTurn::new(self, name, number, &queue.pulse);
        self.look_by(&mut names, by);
        drop(names);
        ended.inspect(Claim::ring);
        Next::LocalWaiter(turn, recipient)
    }

    /// Gives the claim turn back, which so many waiters in a row have not picked up: the next one gets it.
    pub(super) fn pass_on(self: &Arc<Self>, name: &LockName, mut turn: u64, misses: u32) {
        while let Next::LocalWaiter(next, recipient) = self.next(name, turn, misses, |_| true, Move::Turn) {
            match recipient.give(Turn::Claim(next)) {
                // It has left at this moment. A loop, since a chain of drops could be as long as the queue.
                Some(Turn::Claim(unwanted)) => turn = unwanted.into_number(),
                _ => return,
            }
        }
    }

    pub(super) fn look_by(&self, names: &mut Names<Turn>, by: Moment) {
        if names.looks_at.is_some_and(|at| by < at) {
            names.looks_at = Some(by);
            self.look_earlier.notify_one();
        }
    }
}

/// The turn to claim a name at the server for all of this process. Dropping it passes it on.
pub(crate) struct ClaimTurn {
    queues: Arc<LocalQueues>,
    name: LockName,
    number: u64,
    pulse: Arc<Pulse>,
}

impl ClaimTurn {
    pub(super) fn new(queues: &Arc<LocalQueues>, name: &LockName, number: u64, pulse: &Arc<Pulse>) -> Self {
        Self { queues: Arc::clone(queues), name: name.clone(), number, pulse: Arc::clone(pulse) }
    }

    /// What shows whether somebody drives the claim.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// The claim is sent to the server from now on. With `token_blocks` it reserves a token for each task that
    /// may get the lock from it.
    pub(crate) fn begin(&self, claim: &Claim, token_blocks: bool) {
        let queues = &self.queues;
        if let Some(queue) = queues.names().with_turn(&self.name, self.number) {
            queue.begin(claim);
            if token_blocks {
                claim.reserve(queues.sharing.tokens(queue.waiting(), queue.handed_on[1]));
            }
        }
    }

    /// The lock is held from now on, and is handed on until this moment.
    pub(crate) fn note_held(&self, until: Moment) {
        let mut names = self.queues.names();
        let Some(queue) = names.with_turn(&self.name, self.number) else { return };
        // It has been granted, so it is not rung.
        drop(queue.end_claiming());
        queue.held_until = Some(until);
        if queue.waiting() > 0 {
            self.queues.look_by(&mut names, until);
        }
    }

    /// The server does not answer: those that wait behind the claim ask it themselves, and each gets its own
    /// answer in its own time.
    pub(crate) fn scatter(&self) {
        let waiters = self.queues.names().with_turn(&self.name, self.number).map(Queue::scatter);
        for waiter in waiters.into_iter().flatten() {
            // One that has left needs nothing.
            drop(waiter.1.give(Turn::Beside));
        }
    }

    /// How many times the lock may be handed on, and for how long; `None` if it may not. `token_blocks`:
    /// each task can have a token of its own.
    pub(crate) fn hand_off(&self, token_blocks: bool) -> Option<(u32, Duration)> {
        self.queues.sharing.hand_off(token_blocks)
    }

    /// Passes the turn on. `misses`: how many waiters in a row did not pick it up.
    pub(super) fn pass_on_after(&self, misses: u32) {
        self.queues.pass_on(&self.name, self.number, misses);
    }

    /// Moves the turn, which so many in a row have not picked up, to the first waiter, if that one fits. The
    /// answer is the new turn and who is to get it.
    pub(super) fn to_first(
        &self,
        misses: u32,
        fits: impl Fn(&LocalWaiter<Turn>) -> bool,
    ) -> Option<(Self, Recipient<Turn>)> {
        match self.queues.next(&self.name, self.number, misses, fits, Move::Lock) {
            Next::LocalWaiter(turn, recipient) => Some((turn, recipient)),
            Next::Gone | Next::Nobody | Next::Other => None,
        }
    }

    /// Returns the number without passing the turn on: zero is no valid number.
    pub(super) fn into_number(mut self) -> u64 {
        std::mem::replace(&mut self.number, 0)
    }
}

impl PassOn for ClaimTurn {
    fn pass_on(&self) {
        self.queues.pass_on(&self.name, self.number, 0);
    }
}

impl Drop for ClaimTurn {
    fn drop(&mut self) {
        if self.number != 0 {
            self.queues.pass_on(&self.name, self.number, 0);
        }
    }
}

impl fmt::Debug for ClaimTurn {
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
