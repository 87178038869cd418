//! The queue of each name. `V` is the turn that a waiter gets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::delivery::Delivery;
use super::pulse::{Pulse, Seen};
use crate::{Claim, LockName, Moment};

/// A turn that has not been picked up after this time goes to the next. The lock may go with it, and other
/// processes wait for that lock.
pub(super) const PICKED_UP: Duration = Duration::from_millis(2);

/// How many waiters leave the queue when a turn is passed on that `misses` in a row did not pick up. The
/// last of them gets the turn, and those before it are passed over. So thousands of tasks that do not run
/// cost the others some tens of milliseconds, and not two for each of them. Not more than this at once, since
/// the mutex of all names is locked meanwhile.
fn taken_out(misses: u32) -> usize {
    1 << misses.saturating_sub(1).min(10)
}

/// A task in the queue.
#[derive(Debug)]
pub(super) struct LocalWaiter<V> {
    pub(super) claim: Claim,
    pub(super) delivery: Arc<Delivery<V>>,
}

impl<V> LocalWaiter<V> {
    /// Whether the waiter has left: its request was dropped, even if its task has not run yet.
    fn has_gone(&self) -> bool {
        self.claim.has_no_caller() || self.delivery.is_over()
    }

    /// Hands the waiter its turn. If it has left, the turn is returned.
    pub(super) fn give(self, turn: V) -> Option<V> {
        self.delivery.give(turn)
    }
}

#[derive(Debug)]
pub(super) struct Names<V> {
    pub(super) queues: HashMap<LockName, Queue<V>, RandomState>,
    /// The queues that the keeper looks at: those in which somebody waits, or was given the turn. Most queues
    /// may be those of locks that are held, and that nobody waits for.
    pub(super) watched: HashSet<LockName, RandomState>,
    /// Numbers turns and waiters. The number distinguishes a turn that has been passed on from the new one.
    last: u64,
    /// When a task of the keeper next looks at the turns; `None`: no task does.
    pub(super) looks_at: Option<Moment>,
}

impl<V> Default for Names<V> {
    fn default() -> Self {
        Self { queues: HashMap::default(), watched: HashSet::default(), last: 0, looks_at: None }
    }
}

impl<V> Names<V> {
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The number that was given last.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The queue of this name, if the turn of this number is the valid one.
    pub(super) fn with_turn(&mut self, name: &LockName, turn: u64) -> Option<&mut Queue<V>> {
        self.queues.get_mut(name).filter(|queue| queue.turn == turn)
    }
}

/// The waiter that is to get the turn.
pub(super) struct Recipient<V> {
    place: u64,
    waiter: LocalWaiter<V>,
    /// How many before it in a row have not picked up the turn.
    misses: u32,
    /// Waiters that came before it, and are passed over.
    passed_over: Vec<LocalWaiter<V>>,
}

impl<V> Recipient<V> {
    /// Hands the waiter the turn. If it has left, the turn is returned.
    ///
    /// Those that are passed over are woken after that: one of them that runs at once finds the turn on its
    /// way to a later waiter, and takes it.
    pub(super) fn give(self, turn: V) -> Option<V> {
        let unwanted = self.waiter.give(turn);
        for waiter in self.passed_over {
            waiter.delivery.pass_over();
        }
        unwanted
    }
}

/// A turn on its way to a waiter.
#[derive(Debug)]
pub(super) struct Given<V> {
    pub(super) since: Moment,
    place: u64,
    pub(super) misses: u32,
    pub(super) delivery: Arc<Delivery<V>>,
}

/// The queue for a name. It exists while a task has the claim turn.
#[derive(Debug)]
pub(super) struct Queue<V> {
    pub(super) turn: u64,
    /// Whether the claim of the task that has the turn is driven.
    pub(super) pulse: Arc<Pulse>,
    pub(super) seen: Seen,
    /// The claim that was sent to the server. While tasks wait behind it, its place is kept for them.
    claiming: Option<Claim>,
    /// The lock is held, and is handed on until this moment.
    pub(super) held_until: Option<Moment>,
    /// The turn, if it was given to a waiter that may not have picked it up.
    pub(super) given: Option<Given<V>>,
    waiters: BTreeMap<u64, LocalWaiter<V>>,
    /// How often this slice, and the one before, have handed the lock on.
    pub(super) handed_on: [u32; 2],
}

impl<V> Queue<V> {
    pub(super) fn new(turn: u64, now: Moment) -> Self {
        Self {
            turn,
            pulse: Arc::default(),
            seen: Seen::new(now),
            claiming: None,
            held_until: None,
            given: None,
            waiters: BTreeMap::new(),
            handed_on: [0; 2],
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn enter(&mut self, number: u64, waiter: LocalWaiter<V>) {
        self.waiters.insert(number, waiter);
        self.want_place();
    }

    /// A waiter leaves. The claim is to be rung outside of the mutex: its place may not be wanted any more.
    pub(super) fn leave(&mut self, number: u64) -> (Option<LocalWaiter<V>>, Option<Claim>) {
        let waiter = self.waiters.remove(&number);
        self.want_place();
        (waiter, self.claiming.clone().filter(|_| self.waiters.is_empty()))
    }

    /// Takes those out of the front that have left, and the first that has not, for a turn that so many in a
    /// row have not picked up. After several of them it takes out more than one.
    pub(super) fn first(
        &mut self,
        misses: u32,
        gone: &mut Vec<LocalWaiter<V>>,
        fits: impl Fn(&LocalWaiter<V>) -> bool,
    ) -> First<V> {
        let many = taken_out(misses);
        let (mut last, mut passed_over) = (None, Vec::new());
        while last.is_none() || passed_over.len() + 1 < many {
            let Some(first) = self.waiters.first_entry() else { break };
            if first.get().has_gone() {
                gone.push(first.remove());
            } else if fits(first.get()) {
                let before = last.replace(first.remove_entry());
                passed_over.extend(before.map(|(_, waiter)| waiter));
            } else if last.is_none() {
                return First::Other;
            } else {
                break;
            }
        }
        match last {
            Some((place, waiter)) => First::LocalWaiter(Recipient { place, waiter, misses, passed_over }),
            None => First::Nobody,
        }
    }

    /// All of them leave.
    pub(super) fn scatter(&mut self) -> BTreeMap<u64, LocalWaiter<V>> {
        std::mem::take(&mut self.waiters)
    }

    /// This claim is sent to the server.
    pub(super) fn begin(&mut self, claim: &Claim) {
        self.claiming = Some(claim.clone());
        self.want_place();
    }

    /// Nobody waits behind the claim at the server any more. It is to be rung outside of the mutex.
    pub(super) fn end_claiming(&mut self) -> Option<Claim> {
        self.claiming.take().inspect(|claim| claim.want_place(false))
    }

    fn want_place(&self) {
        if let Some(claim) = &self.claiming {
            claim.want_place(!self.waiters.is_empty());
        }
    }

    pub(super) fn claiming(&self) -> Option<&Claim> {
        self.claiming.as_ref()
    }

    /// The next claim begins a slice of its own.
    pub(super) fn begin_slice(&mut self) {
        let [this, before] = self.handed_on;
        self.handed_on = [0, this.max(before / 2)];
    }

    /// The turn gets this number, and goes to this waiter. Returns by when it is to be picked up.
    pub(super) fn move_on(&mut self, turn: u64, recipient: &Recipient<V>) -> Moment {
        let Recipient { place, waiter, misses, .. } = recipient;
        let now = waiter.claim.clock().now();
        (self.turn, self.pulse, self.seen) = (turn, Arc::default(), Seen::new(now));
        self.held_until = None;
        let delivery = Arc::clone(&waiter.delivery);
        self.given = Some(Given { since: now, place: *place, misses: *misses, delivery });
        now.after(PICKED_UP)
    }

    /// Takes the turn that is on its way to a later place than this one, if the turn fits. The other waiter
    /// finds that it was taken back, and queues again.
    ///
    /// The number of the turn and `given` change together, under the mutex of the names. So what is found
    /// here is the valid turn, and nobody passes it on meanwhile. The mutex of the delivery decides between
    /// this, the waiter that picks it up or leaves, and the keeper: one of them has the turn. It is moved out
    /// of here, since to drop it takes the mutex of the names.
    pub(super) fn overtake(&mut self, place: u64, fits: impl Fn(&V) -> bool) -> Option<V> {
        let given = self.given.as_ref().filter(|given| place < given.place)?;
        let turn = given.delivery.take_back_if(fits)?;
        self.given = None;
        Some(turn)
    }
}

/// The first waiter.
pub(super) enum First<V> {
    LocalWaiter(Recipient<V>),
    /// It does not fit.
    Other,
    Nobody,
}
