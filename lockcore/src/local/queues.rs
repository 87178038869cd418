//! The slots of one client, and the turn to claim a name.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::handed_lock::HandedLock;
use super::pulse::Pulse;
use super::sharing::Sharing;
use super::slot::{Afterwards, Slot};
use crate::contract::PassOn;
use crate::system::{lock, wake_tasks};
use crate::{Claim, Clock, LockName, Mode, Moment};

/// The slots of one client.
#[derive(Debug)]
pub(crate) struct LocalQueues {
    sharing: Sharing,
    pub(super) clock: Clock,
    names: Mutex<Names>,
    /// Notified when the keeper is to look earlier than it intends to.
    pub(super) look_earlier: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) slots: HashMap<LockName, Slot, RandomState>,
    /// The slots that the keeper looks at: those in which somebody waits. Most slots may be those of locks that
    /// are held, and that nobody waits for.
    pub(super) watched: HashSet<LockName, RandomState>,
    /// Numbers turns and waiters. The number distinguishes a turn that has been passed on from the new one.
    pub(super) last: u64,
    /// When a task of the keeper next looks at the slots; `None`: no task does.
    pub(super) looks_at: Option<Moment>,
}

impl Names {
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The slot of this name, if the turn of this number is the valid one.
    fn with_turn(&mut self, name: &LockName, turn: u64) -> Option<&mut Slot> {
        self.slots.get_mut(name).filter(|slot| slot.turn == turn)
    }
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

impl LocalQueues {
    pub(crate) fn new(sharing: Sharing, clock: Clock) -> Arc<Self> {
        Arc::new(Self { sharing, clock, names: Mutex::default(), look_earlier: Notify::new() })
    }

    /// Whether claims of this mode queue here.
    pub(crate) fn takes(&self, mode: Mode) -> bool {
        self.sharing.queues(mode)
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names> {
        lock(&self.names)
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.names().slots.is_empty()
    }

    /// The turn of this number is free from now on. If nobody waits for it, its slot is removed.
    pub(super) fn pass_on(&self, name: &LockName, turn: u64) {
        let mut names = self.names();
        let number = names.number();
        let Some(slot) = names.with_turn(name, turn) else { return };
        if !slot.is_waited_for() {
            let ended = slot.end_claiming();
            let unused = names.slots.remove(name);
            drop(names);
            if let Some(claim) = ended {
                claim.ring();
            }
            drop(unused);
            return;
        }
        let afterwards = slot.free(number, self.clock.now());
        self.end(names, name, afterwards);
    }

    /// Ends a change of a slot, and wakes tasks outside of the mutex. A turn that is free for nobody ends.
    fn end(&self, mut names: MutexGuard<'_, Names>, name: &LockName, afterwards: Afterwards) {
        let mut unused = None;
        match names.slots.get(name) {
            Some(slot) if slot.is_free() && !slot.is_waited_for() => unused = names.slots.remove(name),
            Some(slot) => {
                let due = slot.due();
                self.look_by(&mut names, due);
            }
            None => (),
        }
        drop(names);
        afterwards.run();
        drop(unused);
    }

    /// A waiter leaves. A turn that is free for nobody ends, and a lock that lies with it is released.
    pub(super) fn leave(self: &Arc<Self>, name: &LockName, place: u64) {
        let mut names = self.names();
        let number = names.number();
        let Some(slot) = names.slots.get_mut(name) else { return };
        let afterwards = slot.leave(place);
        if slot.has_spare_lock() {
            let (pulse, lock) = slot.take(number, self.clock.now());
            drop(names);
            afterwards.run();
            if let Some(lock) = lock {
                lock.release(Arc::new(ClaimTurn::new(self, name, number, pulse)));
            }
        } else {
            self.end(names, name, afterwards);
        }
    }

    /// The keeper, if it watches, looks by this moment.
    pub(super) fn look_by(&self, names: &mut Names, by: Option<Moment>) {
        let Some((at, by)) = names.looks_at.zip(by) else { return };
        if by < at {
            names.looks_at = Some(by);
            self.look_earlier.notify_one();
        }
    }
}

impl Afterwards {
    pub(super) fn run(self) {
        for waker in self.wakers {
            wake_tasks(|| waker.wake());
        }
        if let Some(claim) = self.ring {
            claim.ring();
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
    pub(super) fn new(queues: &Arc<LocalQueues>, name: &LockName, number: u64, pulse: Arc<Pulse>) -> Self {
        Self { queues: Arc::clone(queues), name: name.clone(), number, pulse }
    }

    /// What shows whether somebody drives the claim.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// The claim is sent to the server from now on. With `token_blocks` it reserves a token for each task that
    /// may get the lock from it.
    pub(crate) fn begin(&self, claim: &Claim, token_blocks: bool) {
        let queues = &self.queues;
        if let Some(slot) = queues.names().with_turn(&self.name, self.number) {
            slot.begin(claim);
            if token_blocks {
                let (waiting, used) = slot.demand();
                claim.reserve(queues.sharing.tokens(waiting, used));
            }
        }
    }

    /// The lock is held from now on, and is handed on until this moment.
    pub(crate) fn note_held(&self, until: Moment) {
        let mut names = self.queues.names();
        let Some(slot) = names.with_turn(&self.name, self.number) else { return };
        let ended = slot.note_held(until);
        if slot.is_waited_for() {
            self.queues.look_by(&mut names, Some(until));
        }
        drop(names);
        // Outside of the mutex. It was granted, so it is not rung.
        drop(ended);
    }

    /// Puts the held lock into the slot, for those that wait. If it is for none of them, it is returned.
    pub(crate) fn offer(&self, lock: HandedLock) -> Option<HandedLock> {
        let mut names = self.queues.names();
        let number = names.number();
        let Some(slot) = names.with_turn(&self.name, self.number) else { return Some(lock) };
        let (unwanted, afterwards) = slot.offer(number, lock, self.queues.clock.now());
        let due = slot.due();
        self.queues.look_by(&mut names, due);
        drop(names);
        afterwards.run();
        unwanted
    }

    /// The server does not answer: those that wait behind the claim ask it themselves, and each gets its own
    /// answer in its own time.
    pub(crate) fn scatter(&self) {
        let scattered = self.queues.names().with_turn(&self.name, self.number).map(Slot::scatter);
        scattered.unwrap_or_default().run();
    }

    /// How many times the lock may be handed on, and for how long; `None` if it may not. `token_blocks`:
    /// each task can have a token of its own.
    pub(crate) fn hand_off(&self, token_blocks: bool) -> Option<(u32, Duration)> {
        self.queues.sharing.hand_off(token_blocks)
    }
}

impl PassOn for ClaimTurn {
    fn pass_on(&self) {
        self.queues.pass_on(&self.name, self.number);
    }
}

impl Drop for ClaimTurn {
    fn drop(&mut self) {
        self.queues.pass_on(&self.name, self.number);
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
