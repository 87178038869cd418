//! The hand-over by a release, model-checked: a release grants the lock to the first in the queue, under a
//! provisional lease, and tells it.
//!
//! Every order of messages, late ones and lost ones (those that are never delivered) included: heartbeats
//! before, within and after a release, grants that come after their lease has lapsed, waiters that enrol
//! again, are cancelled or die, holders that die, connections that are replaced, and a clock of the server
//! that is set forward or back. Until when the grant is valid is not modelled: it is `backend/hand_over.rs`,
//! the code that production runs.
//!
//! `clock_before_commit` is the form of the SQL backends: a release reads the clock, and a heartbeat may be
//! served before it commits. On Redis both are one step.
//!
//! The searches of every day take seconds. The others say how big they are:
//! `cargo test --release -p models --test hand_over -- --ignored --nocapture --test-threads 1`.

#[path = "../support/search.rs"]
mod search;
mod state;

use stateright::{Model, Property};

use search::{breaks, holds};
use state::{Message, PROCESSES, Phase, State, Twist};

const EXCLUSIVE: &str = "one holder at a time";
const RISING: &str = "tokens rise by order of grant";
const SERVED: &str = "no waiter is lost";
const PUSHED: &str = "a grant of a release is valid";

/// How much of what can happen is tried: fewer states take less time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extent {
    Whole,
    /// Nobody who waits is cancelled.
    NoCancels,
    /// Nor does anybody renew, nor is it looked at whether all are served: what a violation of a rule does
    /// not need.
    Rules,
}

#[derive(Clone, Debug)]
struct World {
    clock_before_commit: bool,
    twist: Option<Twist>,
    /// The release of the first holder is under way at the start.
    released: bool,
    /// How long to look.
    ticks: u8,
    /// The most heartbeats and renewals of each process.
    asks: [u8; PROCESSES],
    extent: Extent,
    crashes: u8,
    clock_steps: u8,
    reconnects: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Tick,
    SetClock { forward: bool },
    Ask(usize),
    Leave(usize),
    Crash(usize),
    Reconnect(usize),
    Deliver(Message),
    Commit,
}

impl World {
    fn new(clock_before_commit: bool) -> Self {
        Self {
            clock_before_commit,
            twist: None,
            released: true,
            ticks: 3,
            asks: [0, 2, 1],
            extent: Extent::Whole,
            crashes: 0,
            clock_steps: 0,
            reconnects: 0,
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.released)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        if state.steps < self.clock_steps {
            actions.push(Action::SetClock { forward: false });
            // Within a lease it would break any lease, and this one has begun.
            if state.committing.is_none() {
                actions.push(Action::SetClock { forward: true });
            }
        }
        for (who, process) in state.processes.iter().enumerate() {
            if matches!(process.phase, Phase::Done | Phase::Crashed) {
                continue;
            }
            let waits = process.phase == Phase::Waits;
            if process.asked < self.asks[who] && (waits || self.extent != Extent::Rules) {
                actions.push(Action::Ask(who));
            }
            if self.extent == Extent::Whole || !waits {
                actions.push(Action::Leave(who));
            }
            if state.crashes < self.crashes {
                actions.push(Action::Crash(who));
            }
            if state.reconnects < self.reconnects && waits {
                actions.push(Action::Reconnect(who));
            }
        }
        actions.extend(state.messages.iter().map(|&message| Action::Deliver(message)));
        if state.committing.is_some() {
            actions.push(Action::Commit);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.tick(),
            Action::SetClock { forward } => state.set_clock(forward),
            Action::Ask(who) => state.ask(who),
            Action::Leave(who) => state.leave(who),
            Action::Crash(who) => {
                state.crashes += 1;
                state.processes[who].phase = Phase::Crashed;
            }
            Action::Reconnect(who) => {
                state.reconnects += 1;
                state.processes[who].generation += 1;
            }
            Action::Deliver(message) => {
                state.messages.remove(&message);
                match message {
                    Message::Ask { who, number, sent, generation } => {
                        let answer = state.answer(who, number, sent, generation)?;
                        state.messages.insert(answer);
                    }
                    Message::Release { .. } if state.committing.is_some() => return None,
                    Message::Release { who } if self.clock_before_commit => {
                        state.committing = Some((who, state.clock));
                    }
                    Message::Release { who } => state.release(who, state.clock),
                    other => state.deliver(other, self.twist),
                }
            }
            Action::Commit => {
                let (who, read) = state.committing.take()?;
                state.release(who, read);
            }
        }
        state.settle();
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSIVE, |_, state: &State| state.holders() <= 1),
            Property::always(RISING, |_, state: &State| !state.fell),
            Property::always(SERVED, |world: &Self, state: &State| {
                world.extent == Extent::Rules || all_are_served(state)
            }),
            Property::sometimes(PUSHED, |_, state: &State| {
                state.processes.iter().any(|one| matches!(one.phase, Phase::Holds { pushed: true, .. }))
            }),
        ]
    }
}

/// Whether everybody who waits gets the lock, if all messages under way are lost, the others die or go away
/// without a word, and those who wait do nothing but ask.
fn all_are_served(state: &State) -> bool {
    let mut state = state.clone();
    state.messages.clear();
    if let Some((who, read)) = state.committing.take() {
        state.release(who, read);
    }
    for _ in 0..16 {
        if !state.processes.iter().any(|one| one.phase == Phase::Waits) {
            return true;
        }
        state.tick();
        for who in 0..PROCESSES {
            if state.processes[who].phase == Phase::Waits
                && let Some(answer @ Message::Granted { .. }) =
                    state.answer(who, 0, state.now, state.processes[who].generation)
            {
                state.deliver(answer, None);
                state.processes[who].phase = Phase::Done;
                state.release(who, state.clock);
            }
        }
    }
    false
}

#[test]
fn nothing_breaks_a_release_in_one_step() {
    holds(World { extent: Extent::NoCancels, ..World::new(false) });
    holds(World { clock_steps: 1, ..rules(false) });
}

#[test]
fn nothing_breaks_a_release_that_reads_the_clock_before_it_commits() {
    holds(World { extent: Extent::NoCancels, ..World::new(true) });
}

fn rules(clock_before_commit: bool) -> World {
    World { extent: Extent::Rules, ..World::new(clock_before_commit) }
}

fn twisted(twist: Twist) -> World {
    World { twist: Some(twist), ..rules(false) }
}

#[test]
fn a_heartbeat_without_an_answer_may_be_younger_than_the_grant() {
    breaks(twisted(Twist::Unanswered), EXCLUSIVE);
}

#[test]
fn the_arrival_of_a_message_says_nothing() {
    breaks(twisted(Twist::Arrival), EXCLUSIVE);
}

/// The server's clock was set forward between the heartbeat and the release.
#[test]
fn a_difference_of_two_readings_is_not_enough() {
    breaks(World { clock_steps: 1, ..twisted(Twist::ClockOnly) }, EXCLUSIVE);
}

/// The clock was read, the heartbeat was served, and then the release saw the queue. In one step that cannot
/// be: there the heartbeat that the release has seen is proof enough.
#[test]
fn the_length_of_the_lease_is_not_enough() {
    holds(twisted(Twist::LengthOnly));
    breaks(World { clock_before_commit: true, ..twisted(Twist::LengthOnly) }, EXCLUSIVE);
}

/// The grant has lapsed, the waiter has enrolled again, and the clock was set back: the old grant looks
/// fresh.
#[test]
fn a_heartbeat_that_the_release_has_not_seen_proves_nothing() {
    breaks(World { clock_steps: 1, ..twisted(Twist::AnySign) }, EXCLUSIVE);
}

#[test]
#[ignore = "3 million states, a minute without optimisation"]
fn nothing_breaks_a_release_in_one_step_with_everything_that_can_happen() {
    holds(World::new(false));
    holds(World { clock_steps: 1, ..World::new(false) });
    holds(World { released: false, crashes: 1, ..World::new(false) });
    holds(World { reconnects: 1, ..World::new(false) });
}

#[test]
#[ignore = "5 million states, three minutes without optimisation"]
fn nothing_breaks_a_release_that_reads_the_clock_first_with_everything_that_can_happen() {
    holds(World::new(true));
    holds(World { clock_steps: 1, ..World::new(true) });
    holds(World { released: false, crashes: 1, ..World::new(true) });
}
