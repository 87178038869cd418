use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::system::waker;
use crate::{FencingToken, Grant, LockName, Mode, TestClock, Wait};

const MILLI: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
enum Step {
    /// A task asks, with a lease of this number of seconds.
    Enter(u64),
    /// A task runs, although nobody may have woken it.
    Poll(Index),
    /// A request is dropped, and its task runs later or leaves at once.
    Abandon(Index),
    Leave(Index),
    /// Whoever has the turn passes it on, or offers the lock with it.
    PassOn,
    Offer,
    /// Time passes, and the keeper looks.
    Look(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (10..12_u64).prop_map(Step::Enter),
        6 => any::<Index>().prop_map(Step::Poll),
        1 => any::<Index>().prop_map(Step::Abandon),
        2 => any::<Index>().prop_map(Step::Leave),
        4 => Just(Step::PassOn),
        4 => Just(Step::Offer),
        4 => (0..4_u32).prop_map(Step::Look),
    ]
}

struct Task {
    place: u64,
    claim: Claim,
    /// It was woken since it was polled last.
    woken: Arc<AtomicBool>,
}

struct World {
    clock: TestClock,
    slot: Slot,
    tasks: Vec<Task>,
    /// Somebody has the turn.
    is_taken: bool,
    last: u64,
}

impl World {
    fn new() -> Self {
        let clock = TestClock::new();
        let slot = Slot::new(1, &Arc::default(), clock.clock().now());
        Self { clock, slot, tasks: Vec::new(), is_taken: true, last: 1 }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn now(&self) -> Moment {
        self.clock.clock().now()
    }

    fn claim(&self, ttl: u64) -> Claim {
        let (name, ttl) = (LockName::new("a").unwrap(), Duration::from_secs(ttl));
        Claim::new(name, Mode::Exclusive, ttl, Wait::Forever, "test".into()).with_clock(self.clock.clock())
    }

    fn run(afterwards: Afterwards) {
        afterwards.wakers.into_iter().for_each(Waker::wake);
    }

    fn enter(&mut self, ttl: u64) {
        let (place, now) = (self.number(), self.now());
        if self.slot.is_left(now) {
            self.check_turn(place, true);
            drop(self.slot.take(place, now));
            return;
        }
        let claim = self.claim(ttl);
        self.slot.enter(place, &claim);
        self.tasks.push(Task { place, claim, woken: Arc::default() });
        self.poll(self.tasks.len() - 1);
    }

    /// One takes the turn: nobody has it, and of those that came before it, all were woken.
    fn check_turn(&mut self, place: u64, alone: bool) {
        assert!(!std::mem::replace(&mut self.is_taken, true), "two have the turn");
        let mut before = self.tasks.iter().filter(|it| it.place < place && !it.claim.has_no_caller());
        assert!(!alone || before.all(|it| it.woken.load(Ordering::SeqCst)), "it comes before an earlier one");
    }

    fn poll(&mut self, at: usize) {
        let number = self.number();
        let Task { place, claim, woken } = &self.tasks[at];
        woken.store(false, Ordering::SeqCst);
        let notes = Arc::clone(woken);
        let place = *place;
        match self.slot.poll(place, claim, number, waker(move || notes.store(true, Ordering::SeqCst))) {
            Polled::Taken(_, lock) => {
                assert!(!claim.has_no_caller(), "nobody wants it");
                assert!(lock.as_ref().is_none_or(|lock| lock.fits(claim)), "it wants another lease");
                self.tasks.remove(at);
                self.check_turn(place, lock.is_none());
            }
            Polled::Waits(_) => (),
            // A waiter without a caller has lost its place.
            Polled::Scattered => assert!(claim.has_no_caller(), "it has a place"),
        }
    }

    fn leave(&mut self, at: usize) {
        let task = self.tasks.remove(at);
        Self::run(self.slot.leave(task.place));
        if self.slot.has_spare_lock() {
            self.release();
        }
    }

    /// The lock is released, and the turn passed on after that.
    fn release(&mut self) {
        let (number, now) = (self.number(), self.now());
        assert!(self.slot.take(number, now).1.is_some(), "the lock lies here");
        assert!(!std::mem::replace(&mut self.is_taken, true));
        self.pass_on();
    }

    fn pass_on(&mut self) {
        if std::mem::take(&mut self.is_taken) {
            let (number, now) = (self.number(), self.now());
            Self::run(self.slot.free(number, now));
        }
    }

    fn offer(&mut self) {
        if self.is_taken {
            let (number, now) = (self.number(), self.now());
            let grant = Grant::new(&self.claim(10), FencingToken::new(1), now);
            let lock = HandedLock { stub: None, grant, times: 1, until: now.after(MILLI * 6) };
            let (unwanted, afterwards) = self.slot.offer(number, lock, now);
            self.is_taken = unwanted.is_some();
            Self::run(afterwards);
        }
    }

    fn look(&mut self, millis: u32) {
        self.clock.advance(MILLI * millis);
        if !self.slot.is_waited_for() || self.is_taken {
            return;
        }
        match self.slot.look(self.now()) {
            Found::Nothing(_) => (),
            Found::Woken(_, afterwards) => Self::run(afterwards),
            Found::Over => self.release(),
            Found::PassOn | Found::Quiet(_) => panic!("nobody has the turn"),
        }
    }

    fn step(&mut self, step: &Step) {
        let at = |index: &Index, tasks: &[Task]| (!tasks.is_empty()).then(|| index.index(tasks.len()));
        match step {
            Step::Enter(ttl) => self.enter(*ttl),
            Step::Poll(index) => drop(at(index, &self.tasks).map(|at| self.poll(at))),
            Step::Abandon(index) => drop(at(index, &self.tasks).map(|at| self.tasks[at].claim.abandon())),
            Step::Leave(index) => drop(at(index, &self.tasks).map(|at| self.leave(at))),
            Step::PassOn => self.pass_on(),
            Step::Offer => self.offer(),
            Step::Look(millis) => self.look(*millis),
        }
    }

    /// Tasks run when they were woken, and requests without a caller leave. Then each has its turn.
    fn end(mut self) {
        for _ in 0..8 * (self.tasks.len() + 2) {
            while let Some(gone) = self.tasks.iter().position(|it| it.claim.has_no_caller()) {
                self.leave(gone);
            }
            while let Some(woken) = self.tasks.iter().position(|it| it.woken.load(Ordering::SeqCst)) {
                self.poll(woken);
            }
            self.pass_on();
            self.look(2);
        }
        assert!(self.tasks.is_empty(), "{} wait for ever", self.tasks.len());
    }
}

proptest! {
    #[test]
    fn no_order_of_events_keeps_a_turn_from_those_who_wait(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.end();
    }
}
