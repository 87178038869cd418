//! How a task gets the turn, or waits for it.

use std::sync::{Arc, Weak};

use super::delivery::Delivery;
use super::names::{LocalWaiter, Names, Queue};
use super::queues::{ClaimTurn, LocalQueues, Turn};
use crate::contract::PassOn;
use crate::{Claim, Clock, Error, LockName, Moment, Result, Wait};

impl LocalQueues {
    /// Waits for the turn of this claim; `None` when its wait is over. It is an error if that is so because
    /// the server does not answer.
    pub(crate) async fn turn(self: &Arc<Self>, claim: &Claim) -> Result<Option<Turn>> {
        let mut number = None;
        loop {
            let (number, delivery) = match self.enter(claim, &mut number) {
                Entered::Turn(turn) => return Ok(Some(turn)),
                Entered::Waits(number, delivery) => (number, delivery),
            };
            claim.note_waiting();
            let place = LocalPlace { queues: Arc::downgrade(self), name: claim.name().clone(), number };
            claim.turn().put(Arc::new(place));
            let entry = QueueEntry { queues: self, name: claim.name(), number, delivery: &delivery };
            let turn = tokio::select! {
                biased;
                turn = delivery.turn() => turn,
                // A turn that comes at this moment goes to the next, with the entry.
                () = claim.wait_over() => {
                    let silence = self.silence(claim.name());
                    return silence.filter(|_| !claim.has_no_caller()).map_or(Ok(None), Err);
                }
            };
            drop(entry);
            // Its turn has come, and the answer of the server is still to come.
            claim.begin_now();
            if turn.is_some() {
                return Ok(turn);
            }
            // It was taken back, since nobody has polled this for a while, or this was passed over. It still
            // comes before those that came later: it takes the turn if that is on its way to one of them, or
            // if nobody has it.
        }
    }

    /// A waiter leaves the queue.
    fn leave(&self, name: &LockName, number: u64) {
        let left = self.names().queues.get_mut(name).map(|queue| queue.leave(number));
        // Outside of the mutex, which a turn takes when it is dropped.
        if let Some((_, Some(claim))) = left {
            claim.ring();
        }
    }

    /// The error that the server does not answer the claim of the task that has the turn.
    fn silence(&self, name: &LockName) -> Option<Error> {
        self.names().queues.get(name)?.claiming()?.silence()
    }

    /// Takes the turn if nobody has it, or if it is on its way to a later place. Otherwise it takes a place
    /// in the queue, which keeps its number.
    fn enter(self: &Arc<Self>, claim: &Claim, number: &mut Option<u64>) -> Entered {
        let mut names = self.names();
        let at = *number.get_or_insert_with(|| names.number());
        let turn = names.number();
        let Some(queue) = names.queues.get_mut(claim.name()) else {
            let queue = Queue::new(turn, claim.clock().now());
            let claim_turn = ClaimTurn::new(self, claim.name(), turn, &queue.pulse);
            names.queues.insert(claim.name().clone(), queue);
            return Entered::Turn(Turn::Claim(claim_turn));
        };
        if claim.wait() == Wait::No {
            // Only the server knows who holds the lock: it may have been taken away from this process, which
            // learns of that from its next renewal.
            return Entered::Turn(Turn::Beside);
        }
        // This task runs, and the other one does not yet. In a runtime with many ready tasks each of them is
        // late. If they only queued again, the turn would go round among them, and nobody would have it.
        if let Some(taken) = queue.overtake(at, |turn| !claim.has_no_caller() && turn.suits(claim)) {
            return Entered::Turn(taken);
        }
        let delivery = Arc::new(Delivery::new());
        queue.enter(at, LocalWaiter { claim: claim.clone(), delivery: Arc::clone(&delivery) });
        let by = queue.held_until;
        if !names.watched.contains(claim.name()) {
            names.watched.insert(claim.name().clone());
        }
        self.watch(&mut names, by, claim.clock());
        Entered::Waits(at, delivery)
    }

    /// The keeper is to look at the queues from now on, at this moment at the latest.
    fn watch(self: &Arc<Self>, names: &mut Names<Turn>, by: Option<Moment>, clock: &Clock) {
        if names.looks_at.is_none() {
            names.looks_at = Some(clock.now());
            self.begin_to_watch(clock);
        } else if let Some(by) = by {
            self.look_by(names, by);
        }
    }
}

/// What a claim finds in the queue of its name.
enum Entered {
    /// It is this claim's, since nobody has it or it was on its way to a later one; or it needs none.
    Turn(Turn),
    Waits(u64, Arc<Delivery<Turn>>),
}

/// A waiter in the queue. Dropping it removes the waiter.
struct QueueEntry<'a> {
    queues: &'a LocalQueues,
    name: &'a LockName,
    number: u64,
    delivery: &'a Delivery<Turn>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.queues.leave(self.name, self.number);
        self.delivery.leave();
    }
}

/// The place of a claim in the queue, which it has instead of a turn. If its runtime is not driven, the
/// keeper removes it: no place is kept at the server for a waiter that has gone.
#[derive(Debug)]
struct LocalPlace {
    queues: Weak<LocalQueues>,
    name: LockName,
    number: u64,
}

impl PassOn for LocalPlace {
    fn pass_on(&self) {
        if let Some(queues) = self.queues.upgrade() {
            queues.leave(&self.name, self.number);
        }
    }
}
