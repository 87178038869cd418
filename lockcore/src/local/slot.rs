//! The slot of one name: who has its turn, and who waits for it.
//!
//! A turn that is free lies in the slot, alone or with the held lock, and the first waiter is woken. Whoever of
//! the woken is polled first takes it, so no task has to be asked, and none can keep a turn that it does not
//! pick up. While nobody takes it, more and more are woken. One that was woken and came too late keeps its
//! place. Who comes later takes nothing before those that were woken.
//!
//! Nothing in here blocks, reads a clock, or runs code of the application; wakers are returned.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::handed_lock::{HandedLock, is_alike};
use super::pulse::Pulse;
use crate::{Claim, Moment};

/// A turn that has not been taken after this time is offered to more waiters. The lock may lie with it, and
/// other processes wait for that lock.
pub(super) const PICKED_UP: Duration = Duration::from_millis(2);

/// A claim that was not polled for this time is woken up. If it is not polled for this time again, its turn
/// goes to the next.
pub(super) const POLLED: Duration = Duration::from_millis(500);

/// A task that waits, and was not woken since it was polled last.
#[derive(Debug)]
struct LocalWaiter {
    claim: Claim,
    waker: Waker,
}

#[derive(Debug)]
enum State {
    /// A task has the turn.
    Taken(Taken),
    /// Nobody has it.
    Free(Free),
}

#[derive(Debug)]
struct Taken {
    /// Whether the claim of the task that has the turn is driven.
    pulse: Arc<Pulse>,
    /// How many polls of it were seen, since when, and whether it was woken up after that.
    polls: u64,
    since: Moment,
    woken: bool,
    /// The claim that was sent to the server. Its place is kept while the first that waits can have its lock.
    claiming: Option<Claim>,
    /// The lock is held, and is handed on until this moment.
    held_until: Option<Moment>,
}

#[derive(Debug)]
struct Free {
    /// The held lock, for whoever takes the turn.
    lock: Option<HandedLock>,
    /// The last place that was woken. It and those before it may take the turn.
    up_to: u64,
    /// From when on more waiters are woken.
    due: Moment,
    /// How many are woken then.
    next: usize,
}

/// The most waiters that are woken at once: the mutex of all names is locked meanwhile.
const MOST_WOKEN: usize = 1024;

/// The slot of a name. It exists while a task has the turn, or waits for it.
#[derive(Debug)]
pub(super) struct Slot {
    /// Tells a turn that has been passed on from the present one.
    pub(super) turn: u64,
    state: State,
    waiters: BTreeMap<u64, LocalWaiter>,
    /// Those that were woken, and not polled since.
    woken: BTreeMap<u64, Claim>,
    /// How often this slice, and the one before, have handed the lock on.
    handed_on: [u32; 2],
}

/// What a waiter finds when it is polled.
pub(super) enum Polled {
    /// It has the turn, and perhaps the lock.
    Taken(Arc<Pulse>, Option<HandedLock>),
    /// It waits. The waker that it had before.
    Waits(Option<Waker>),
    /// It has no place any more: those who wait ask the server.
    Scattered,
}

/// What is to be done outside of the mutex.
#[derive(Default)]
#[must_use]
pub(super) struct Afterwards {
    pub(super) wakers: Vec<Waker>,
    /// Its place at the server may not be wanted any more.
    pub(super) ring: Option<Claim>,
    /// Those that have no place any more. A claim that is dropped may pass on a turn.
    gone: Vec<Claim>,
}

impl Afterwards {
    pub(super) fn ringing(claim: Option<Claim>) -> Self {
        Self { ring: claim, ..Self::default() }
    }
}

/// What the keeper finds.
pub(super) enum Found {
    /// Nothing to do before this moment.
    Nothing(Moment),
    /// More waiters were woken.
    Woken(Moment, Afterwards),
    /// The slice of the lock that lies here is over.
    Over,
    /// The turn is to be passed on: the lock is held for longer than its slice, or the claim that was woken up
    /// did nothing.
    PassOn,
    /// The claim is to be woken up.
    Quiet(Arc<Pulse>),
}

impl Slot {
    /// The slot of a turn that was just taken.
    pub(super) fn new(turn: u64, pulse: &Arc<Pulse>, now: Moment) -> Self {
        let (waiters, woken) = (BTreeMap::new(), BTreeMap::new());
        Self { turn, state: State::taken(pulse, now), waiters, woken, handed_on: [0; 2] }
    }

    fn taken(&mut self) -> Option<&mut Taken> {
        match &mut self.state {
            State::Taken(taken) => Some(taken),
            State::Free(_) => None,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiters.len() + self.woken.len()
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty() || !self.woken.is_empty()
    }

    /// Whether one that comes now may take the turn: it is free, and all that wait were woken long enough ago.
    pub(super) fn is_left(&self, now: Moment) -> bool {
        matches!(&self.state, State::Free(Free { lock: None, due, .. }) if now >= *due && self.waiters.is_empty())
    }

    /// A task takes a place. It is polled next.
    pub(super) fn enter(&mut self, place: u64, claim: &Claim) {
        let waiter = LocalWaiter { claim: claim.clone(), waker: Waker::noop().clone() };
        self.waiters.insert(place, waiter);
        self.want_place();
    }

    /// By when the keeper must look at it.
    pub(super) fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Taken(taken) => taken.held_until,
            State::Free(free) => Some(free.due),
        }
    }

    /// The turn, and what lies with it, is taken, and has this number from now on.
    pub(super) fn take(&mut self, turn: u64, now: Moment) -> (Arc<Pulse>, Option<HandedLock>) {
        let pulse = Arc::<Pulse>::default();
        self.turn = turn;
        match std::mem::replace(&mut self.state, State::taken(&pulse, now)) {
            State::Free(free) => (pulse, free.lock),
            State::Taken(_) => (pulse, None),
        }
    }

    /// A waiter is polled. It takes the turn if it may, with this number.
    pub(super) fn poll(&mut self, place: u64, claim: &Claim, turn: u64, waker: Waker) -> Polled {
        let was_woken = self.woken.remove(&place).is_some();
        let known = self.waiters.remove(&place);
        if known.is_none() && !was_woken {
            return Polled::Scattered;
        }
        let may_take = match &self.state {
            State::Free(Free { lock, up_to, .. }) => {
                place <= *up_to && !claim.has_no_caller() && lock.as_ref().is_none_or(|lock| lock.fits(claim))
            }
            State::Taken(_) => false,
        };
        if may_take {
            let (pulse, lock) = self.take(turn, claim.clock().now());
            return Polled::Taken(pulse, lock);
        }
        self.waiters.insert(place, LocalWaiter { claim: claim.clone(), waker });
        Polled::Waits(known.map(|known| known.waker))
    }

    /// A waiter leaves. If it was woken, the next is.
    pub(super) fn leave(&mut self, place: u64) -> Afterwards {
        let mut afterwards = Afterwards::default();
        let waited = self.waiters.remove(&place).map(|waiter| waiter.claim);
        let Some(left) = waited.or_else(|| self.woken.remove(&place)) else { return afterwards };
        afterwards.gone.push(left);
        let wanted = self.want_place();
        match &self.state {
            State::Taken(taken) => afterwards.ring = taken.claiming.clone().filter(|_| !wanted),
            State::Free(free) => {
                if place <= free.up_to {
                    self.wake(1, &mut afterwards);
                }
            }
        }
        afterwards
    }

    /// Wakes so many of those that were not woken for this turn. Returns whether it has woken any.
    fn wake(&mut self, many: usize, afterwards: &mut Afterwards) -> bool {
        let State::Free(Free { lock, up_to, .. }) = &mut self.state else { return false };
        let mut left = many;
        while left > 0 {
            let next = self.waiters.range(*up_to + 1..).next();
            let Some((&place, waiter)) = next else { break };
            let is_gone = waiter.claim.has_no_caller();
            if !is_gone && lock.as_ref().is_some_and(|lock| !lock.fits(&waiter.claim)) {
                break;
            }
            let Some(waiter) = self.waiters.remove(&place) else { break };
            if is_gone {
                afterwards.gone.push(waiter.claim);
                continue;
            }
            *up_to = place;
            self.woken.insert(place, waiter.claim);
            afterwards.wakers.push(waiter.waker);
            left -= 1;
        }
        left < many
    }

    /// Nobody has the turn any more, which gets this number. It is free for those who wait.
    pub(super) fn free(&mut self, turn: u64, now: Moment) -> Afterwards {
        let mut afterwards = Afterwards::ringing(self.end_claiming());
        let [this, before] = self.handed_on;
        self.handed_on = [0, this.max(before / 2)];
        self.turn = turn;
        self.state = State::Free(Free { lock: None, up_to: 0, due: now.after(PICKED_UP), next: 1 });
        if !self.wake(1, &mut afterwards) {
            // All that wait were woken before, and one that comes now need not wait for them.
            let last = self.woken.last_key_value().map_or(0, |(place, _)| *place);
            self.state = State::Free(Free { lock: None, up_to: last, due: now, next: 1 });
        }
        afterwards
    }

    /// The held lock lies here for those who wait, with the turn, which gets this number. If it is not for the
    /// first of them, it is returned.
    pub(super) fn offer(
        &mut self,
        turn: u64,
        lock: HandedLock,
        now: Moment,
    ) -> (Option<HandedLock>, Afterwards) {
        let mut afterwards = Afterwards::default();
        let free = Free { lock: Some(lock), up_to: 0, due: now.after(PICKED_UP), next: 1 };
        let before = std::mem::replace(&mut self.state, State::Free(free));
        if !self.wake(1, &mut afterwards) {
            return match std::mem::replace(&mut self.state, before) {
                State::Free(free) => (free.lock, afterwards),
                State::Taken(_) => (None, afterwards),
            };
        }
        if let State::Taken(Taken { claiming: Some(claim), .. }) = before {
            claim.want_place(false);
            afterwards.ring = Some(claim);
        }
        self.turn = turn;
        self.handed_on[0] += 1;
        (None, afterwards)
    }

    /// All of them leave.
    pub(super) fn scatter(&mut self) -> Afterwards {
        let mut afterwards = Afterwards::default();
        for LocalWaiter { claim, waker } in std::mem::take(&mut self.waiters).into_values() {
            afterwards.wakers.push(waker);
            afterwards.gone.push(claim);
        }
        afterwards.gone.extend(std::mem::take(&mut self.woken).into_values());
        afterwards
    }

    /// This claim is sent to the server.
    pub(super) fn begin(&mut self, claim: &Claim) {
        if let Some(taken) = self.taken() {
            taken.claiming = Some(claim.clone());
        }
        self.want_place();
    }

    /// The lock is held, and is handed on until this moment. The claim was granted, so it is not rung.
    pub(super) fn note_held(&mut self, until: Moment) -> Option<Claim> {
        let ended = self.end_claiming();
        if let Some(taken) = self.taken() {
            taken.held_until = Some(until);
        }
        ended
    }

    /// Nobody waits behind the claim at the server any more. It is to be rung outside of the mutex.
    pub(super) fn end_claiming(&mut self) -> Option<Claim> {
        self.taken()?.claiming.take().inspect(|claim| claim.want_place(false))
    }

    /// Notes, and returns, whether the place of the claim at the server is wanted. A lock that the first does not
    /// take is not offered to those behind it.
    fn want_place(&self) -> bool {
        let Some(claim) = self.claiming() else { return false };
        let wanted = self.first().is_some_and(|first| is_alike(claim, first));
        claim.want_place(wanted);
        wanted
    }

    /// The first of those that wait.
    fn first(&self) -> Option<&Claim> {
        let waits = self.waiters.first_key_value().map(|(place, waiter)| (place, &waiter.claim));
        let first = waits.into_iter().chain(self.woken.first_key_value()).min_by_key(|(place, _)| **place);
        first.map(|(_, claim)| claim)
    }

    pub(super) fn claiming(&self) -> Option<&Claim> {
        match &self.state {
            State::Taken(taken) => taken.claiming.as_ref(),
            State::Free(_) => None,
        }
    }

    /// How many tasks wait, and how often the slice before has handed the lock on.
    pub(super) fn demand(&self) -> (usize, u32) {
        (self.waiting(), self.handed_on[1])
    }

    /// What the keeper is to do, while somebody waits.
    pub(super) fn look(&mut self, now: Moment) -> Found {
        match &mut self.state {
            State::Free(free) => {
                let ends = free.lock.as_ref().map_or(Moment::NEVER, |lock| lock.until);
                if now >= ends {
                    return Found::Over;
                }
                if now < free.due {
                    return Found::Nothing(free.due.min(ends));
                }
                let many = free.next;
                free.next = (many * 2).min(MOST_WOKEN);
                let mut afterwards = Afterwards::default();
                if !self.wake(many, &mut afterwards) {
                    return if self.has_spare_lock() { Found::Over } else { Found::Nothing(ends) };
                }
                let due = now.after(PICKED_UP);
                if let State::Free(free) = &mut self.state {
                    free.due = due;
                }
                Found::Woken(due.min(ends), afterwards)
            }
            State::Taken(Taken { held_until: Some(until), .. }) => {
                if now >= *until {
                    Found::PassOn
                } else {
                    Found::Nothing(*until)
                }
            }
            State::Taken(taken) => {
                let polls = taken.pulse.polls();
                if polls != taken.polls {
                    (taken.polls, taken.since, taken.woken) = (polls, now, false);
                }
                let by = taken.since.after(POLLED);
                if now < by {
                    return Found::Nothing(by);
                }
                taken.since = now;
                let was_woken = std::mem::replace(&mut taken.woken, true);
                if was_woken { Found::PassOn } else { Found::Quiet(Arc::clone(&taken.pulse)) }
            }
        }
    }

    /// Whether a lock lies here that none of those who were woken takes.
    pub(super) fn has_spare_lock(&self) -> bool {
        let State::Free(Free { lock: Some(lock), up_to, .. }) = &self.state else { return false };
        !self.woken.range(..=*up_to).any(|(_, claim)| !claim.has_no_caller() && lock.fits(claim))
    }

    /// Whether nobody has the turn.
    pub(super) fn is_free(&self) -> bool {
        matches!(&self.state, State::Free(_))
    }
}

impl State {
    fn taken(pulse: &Arc<Pulse>, now: Moment) -> Self {
        let pulse = Arc::clone(pulse);
        Self::Taken(Taken { pulse, polls: 0, since: now, woken: false, claiming: None, held_until: None })
    }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
