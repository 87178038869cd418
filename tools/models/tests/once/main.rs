//! Jobs that run once for a key, model-checked: hosts that come at any time, crash, lose the lock with or
//! without noticing it, fail, are interrupted, and have no answers to their requests.
//!
//! What a host does is not modelled: it is `jobs/once.rs`, the code that production runs. The record is one that
//! only the present holder of the lock writes, and that is never lost.

#[path = "../support/search.rs"]
mod search;
mod state;

use stateright::{Model, Property};

use state::{HOSTS, LIMIT, Outcome, State, Twist};

const HONEST: &str = "no success is reported without one";
const BOUNDED: &str = "no key has more attempts than it may";
const FAILS_ONCE: &str = "who waits does not repeat what has failed meanwhile";
const NO_EXCUSE: &str = "nobody leaves the job to others without a reason";
const COUNTS_ONCE: &str = "no attempt counts that its host could still have made";
const TAKES_OVER: &str = "a job is done after its host has died";

#[derive(Clone, Debug)]
struct World {
    twist: Option<Twist>,
    crashes: u8,
    losses: u8,
    silences: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// What the host waits for comes to this.
    Comes(usize, Outcome),
    Crash(usize),
    /// The lease of the host ends, and it does not know.
    Lose(usize),
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for host in 0..HOSTS {
            if !state.is_there(host) {
                continue;
            }
            for outcome in state.outcomes(host, state.silences < self.silences) {
                actions.push(Action::Comes(host, outcome));
            }
            if state.crashes < self.crashes {
                actions.push(Action::Crash(host));
            }
            if state.losses < self.losses && state.holder == Some(host) {
                actions.push(Action::Lose(host));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Comes(host, outcome) => state.comes(host, outcome, self.twist),
            Action::Crash(host) => state.crash(host),
            Action::Lose(_) => state.lose(),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HONEST, |_, state: &State| state.has_succeeded || !state.is_success_reported()),
            Property::always(BOUNDED, |_, state: &State| state.works <= LIMIT),
            Property::always(FAILS_ONCE, |_, state: &State| !state.has_repeated),
            Property::always(NO_EXCUSE, |_, state: &State| state.have_reasons()),
            Property::always(COUNTS_ONCE, |_, state: &State| {
                !state.is_given_up() || state.attempts() >= LIMIT
            }),
            Property::sometimes(TAKES_OVER, |_, state: &State| state.has_crashed_at_work && state.is_done()),
        ]
    }
}

fn world() -> World {
    World { twist: None, crashes: 2, losses: 1, silences: 1 }
}

fn breaks(twist: Twist, property: &'static str) {
    search::breaks(World { twist: Some(twist), ..world() }, property);
}

#[test]
fn nothing_breaks_the_rules() {
    search::holds(world());
}

#[test]
fn a_key_is_not_done_before_the_work() {
    breaks(Twist::DoneBeforeWork, HONEST);
}

#[test]
fn an_attempt_is_counted_before_it_begins() {
    breaks(Twist::NoBegun, BOUNDED);
}

#[test]
fn who_waits_remembers_what_there_was() {
    breaks(Twist::WaitersRunFailures, FAILS_ONCE);
}

/// One who has died is taken for one who has failed.
#[test]
fn a_failure_is_what_a_host_has_written() {
    breaks(Twist::DeathsAreFailures, NO_EXCUSE);
}

#[test]
fn an_attempt_that_has_not_run_does_not_count_twice() {
    breaks(Twist::CountsTwice, COUNTS_ONCE);
}
