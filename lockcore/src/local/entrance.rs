//! How a task gets the turn, or waits for it.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::pulse::Pulse;
use super::queues::{ClaimTurn, LocalQueues, Turn};
use super::slot::{Polled, Slot};
use crate::contract::PassOn;
use crate::{Claim, Error, LockName, Result, Wait};

impl LocalQueues {
    /// Waits for the turn of this claim; `None` when its wait is over. It is an error if that is so because
    /// the server does not answer.
    pub(crate) async fn turn(self: &Arc<Self>, claim: &Claim) -> Result<Option<Turn>> {
        let number = match self.enter(claim) {
            Entered::Turn(turn) => return Ok(Some(turn)),
            Entered::Waits(number) => number,
        };
        let entry = QueueEntry { queues: self, name: claim.name(), number };
        claim.note_waiting();
        let place = LocalPlace { queues: Arc::downgrade(self), name: claim.name().clone(), number };
        claim.put_turn(Arc::new(place));
        let turn = tokio::select! {
            biased;
            turn = poll_fn(|cx| self.poll(claim, number, cx)) => turn,
            // A turn that was free for it is free for the next, with the entry.
            () = claim.wait_over() => {
                let silence = self.silence(claim.name());
                return silence.filter(|_| !claim.has_no_caller()).map_or(Ok(None), Err);
            }
        };
        // It has no place any more.
        std::mem::forget(entry);
        // Its turn has come, and the answer of the server is still to come.
        claim.begin_now();
        Ok(Some(turn))
    }

    /// The error that the server does not answer the claim of the task that has the turn.
    fn silence(&self, name: &LockName) -> Option<Error> {
        self.names().slots.get(name)?.claiming()?.silence()
    }

    /// Takes the turn if nobody has it, or a place in the queue.
    fn enter(self: &Arc<Self>, claim: &Claim) -> Entered {
        let name = claim.name();
        let mut names = self.names();
        let (number, now) = (names.number(), self.clock.now());
        let Some(slot) = names.slots.get_mut(name) else {
            let pulse = Arc::<Pulse>::default();
            names.slots.insert(name.clone(), Slot::new(number, &pulse, now));
            return Entered::Turn(Turn::Claim(ClaimTurn::new(self, name, number, pulse)));
        };
        if claim.wait() == Wait::No {
            // Only the server knows who holds the lock: it may have been taken away from this process, which
            // learns of that from its next renewal.
            return Entered::Turn(Turn::Beside);
        }
        if slot.is_left(now) {
            let (pulse, _) = slot.take(number, now);
            return Entered::Turn(Turn::Claim(ClaimTurn::new(self, name, number, pulse)));
        }
        slot.enter(number, claim);
        let by = slot.due();
        if !names.watched.contains(name) {
            names.watched.insert(name.clone());
        }
        if names.looks_at.is_none() {
            names.looks_at = Some(now);
            self.begin_to_watch();
        } else {
            self.look_by(&mut names, by);
        }
        Entered::Waits(number)
    }

    /// A task that waits is polled: it takes the turn if that is free for it.
    fn poll(self: &Arc<Self>, claim: &Claim, place: u64, cx: &Context<'_>) -> Poll<Turn> {
        let (name, waker) = (claim.name(), cx.waker().clone());
        let mut names = self.names();
        let number = names.number();
        let polled = names.slots.get_mut(name).map(|slot| slot.poll(place, claim, number, waker));
        drop(names);
        match polled {
            Some(Polled::Taken(pulse, lock)) => {
                let turn = ClaimTurn::new(self, name, number, pulse);
                Poll::Ready(match lock {
                    None => Turn::Claim(turn),
                    Some(lock) => {
                        let turn = Arc::new(turn);
                        lock.belongs_to(Arc::clone(&turn) as Arc<dyn PassOn>);
                        Turn::Handed(turn, lock)
                    }
                })
            }
            Some(Polled::Waits(before)) => {
                drop(before);
                Poll::Pending
            }
            // The keeper has removed its place, since nobody drives it.
            Some(Polled::Scattered) | None if claim.has_no_caller() => Poll::Pending,
            Some(Polled::Scattered) | None => Poll::Ready(Turn::Beside),
        }
    }
}

/// What a claim finds in the slot of its name.
enum Entered {
    /// It is this claim's, since nobody has it; or it needs none.
    Turn(Turn),
    /// It has this place.
    Waits(u64),
}

/// A waiter in the queue. Dropping it removes the waiter.
struct QueueEntry<'a> {
    queues: &'a Arc<LocalQueues>,
    name: &'a LockName,
    number: u64,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.queues.leave(self.name, self.number);
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
