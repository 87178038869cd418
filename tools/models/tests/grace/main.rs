//! The grace period, model-checked: a server whose grants come to the disk some time later crashes, with some
//! of them or without, and starts again, with its clock or with one that is wrong for some time.
//!
//! Every order of grants, renewals that arrive at any time or never, releases, crashes, and looks at the
//! mark. Where a replica takes the place of the server, it may lack the last rise of the bound of tokens as
//! well. When a mark opens is not modelled: it is `backend/grace.rs`, the code that production runs. Requests to
//! raise its count arrive late and several times, and the processes that count may end and begin anew. The row
//! on the disk is that of any moment between the last sync and the crash.
//!
//! The search of every day takes seconds. The other says how big it is:
//! `cargo test --release -p models --test grace -- --ignored --nocapture --test-threads 1`.

#[path = "../support/search.rs"]
mod search;
mod state;

use stateright::{Model, Property};

use search::holds;
use state::{PROCESSES, RaiseRequest, RenewalRequest, State, Twist};

const EXCLUSIVE: &str = "one holder at a time";
const RISING: &str = "tokens rise by order of grant";
const KEPT: &str = "nobody loses a lock within its lease";
const GRANTS_AGAIN: &str = "a lock is granted after a crash";

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what may happen")]
struct World {
    twist: Option<Twist>,
    ticks: u8,
    claims: [u8; PROCESSES],
    renewals: [u8; PROCESSES],
    crashes: u8,
    /// Whether the server may start with a clock that is wrong, and set right later.
    clock_steps: bool,
    /// Whether a replica may take the place of the server.
    has_replica: bool,
    /// Which processes look at the mark.
    looks: [bool; PROCESSES],
    /// Whether a process may end while it counts.
    are_short: bool,
    /// Whether a mark also says when it opens by the server's clock, as on PostgreSQL.
    by_clock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Tick,
    Sync,
    Crash { clock_back: bool, replica: bool },
    SetClockRight,
    Claim(usize),
    AskToRenew(usize),
    Renew(RenewalRequest),
    Release(usize),
    Look(usize),
    Count(RaiseRequest),
    BeginAnew(usize),
}

impl World {
    fn new() -> Self {
        Self {
            twist: None,
            ticks: 4,
            claims: [1, 1],
            renewals: [1, 1],
            crashes: 1,
            clock_steps: true,
            has_replica: false,
            looks: [true, false],
            are_short: false,
            by_clock: true,
        }
    }

    /// Two crashes or failovers, and little else.
    fn of_two_crashes() -> Self {
        Self {
            claims: [2, 1],
            renewals: [0, 0],
            crashes: 2,
            clock_steps: false,
            has_replica: true,
            ..Self::new()
        }
    }
}

impl World {
    /// Two processes count, none of which need live for long, and no clock but theirs plays a part.
    fn of_short_lives() -> Self {
        Self {
            claims: [1, 1],
            renewals: [0, 0],
            clock_steps: false,
            looks: [true, true],
            are_short: true,
            by_clock: false,
            ..Self::new()
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        if state.row != state.on_disk {
            actions.push(Action::Sync);
        }
        if state.crashes < self.crashes {
            actions.push(Action::Crash { clock_back: false, replica: false });
            if self.clock_steps {
                actions.push(Action::Crash { clock_back: true, replica: false });
            }
            if self.has_replica {
                actions.push(Action::Crash { clock_back: false, replica: true });
            }
        }
        if !state.is_clock_settled {
            actions.push(Action::SetClockRight);
        }
        for (who, process) in state.processes.iter().enumerate() {
            let is_valid = process.hold.is_some_and(|hold| hold.until > state.now);
            if !is_valid && process.claims < self.claims[who] {
                actions.push(Action::Claim(who));
            }
            let renews = is_valid || process.hold.is_some() && self.twist == Some(Twist::RenewsLate);
            if renews && process.renewals < self.renewals[who] {
                actions.push(Action::AskToRenew(who));
            }
            if is_valid {
                actions.push(Action::Release(who));
            }
            if self.looks[who] && state.crashes > 0 {
                actions.push(Action::Look(who));
            }
            if self.are_short && process.counts() {
                actions.push(Action::BeginAnew(who));
            }
        }
        actions.extend(state.raises.iter().map(|&request| Action::Count(request)));
        actions.extend(state.messages.iter().map(|&message| Action::Renew(message)));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Sync => state.on_disk = state.row,
            Action::Crash { clock_back, replica } => state.crash(clock_back, replica),
            Action::SetClockRight => state.set_clock_right(),
            Action::Claim(who) => state.claim(who, self.twist),
            Action::AskToRenew(who) => state.ask_to_renew(who),
            Action::Renew(request) => {
                state.messages.remove(&request);
                state.renew(request, self.twist);
            }
            Action::Release(who) => state.release(who),
            Action::Look(who) => state.look(who, self.by_clock, self.twist),
            // It stays: it may arrive again.
            Action::Count(request) => state.count(request, self.twist),
            Action::BeginAnew(who) => state.begin_anew(who),
        }
        state.settle(self.twist, state.crashes == self.crashes);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSIVE, |_, state: &State| state.holders() <= 1),
            Property::always(RISING, |_, state: &State| !state.fell),
            Property::always(KEPT, |_, state: &State| !state.lost),
            Property::sometimes(GRANTS_AGAIN, |_, state: &State| {
                state.crashes > 0 && state.now > 2 && state.holders() > 0
            }),
        ]
    }
}

fn breaks(twist: Twist, property: &'static str) {
    breaks_in(World::new(), twist, property);
}

fn breaks_in(world: World, twist: Twist, property: &'static str) {
    search::breaks(World { twist: Some(twist), ..world }, property);
}

#[test]
fn nothing_breaks_a_grace_period() {
    holds(World::new());
    holds(World::of_two_crashes());
    holds(World::of_short_lives());
}

#[test]
fn without_a_mark_nothing_may_be_granted() {
    breaks(Twist::GrantsWithoutMark, EXCLUSIVE);
}

#[test]
fn the_clock_of_a_server_that_has_just_started_proves_nothing() {
    breaks(Twist::ServersClockAlone, EXCLUSIVE);
}

/// Two processes that see the same count see the same time.
#[test]
fn what_two_clients_have_seen_is_not_added_up() {
    breaks_in(World::of_short_lives(), Twist::AddsUp, EXCLUSIVE);
}

/// The request is from before the crash.
#[test]
fn a_count_is_replaced_only_if_it_is_the_one_that_was_seen() {
    let world =
        World { crashes: 2, ticks: 3, looks: [true, false], are_short: false, ..World::of_short_lives() };
    breaks_in(world, Twist::RaisesBlindly, EXCLUSIVE);
}

#[test]
fn the_last_token_in_the_table_need_not_be_the_last() {
    breaks(Twist::NoFloor, RISING);
}

/// The replica that takes the place of the server lacks the rise.
#[test]
fn the_bound_is_raised_a_grace_period_before_it_is_needed() {
    breaks_in(World::of_two_crashes(), Twist::RaisesLate, RISING);
}

/// The record of a holder whose lease had ended came back, and the grant after it did not.
#[test]
fn a_lease_that_has_ended_does_not_come_back() {
    breaks(Twist::RenewsLate, EXCLUSIVE);
}

#[test]
fn a_grant_that_was_lost_is_reclaimed() {
    breaks(Twist::NoReclaim, KEPT);
}

/// A renewal from before the crash arrives after the grace period, when another has the lock. Its token says
/// that.
#[test]
fn a_late_reclaim_takes_the_lock_from_nobody() {
    let world = World { claims: [1, 2], renewals: [1, 0], ..World::new() };
    breaks_in(world, Twist::ReclaimsFromAnybody, RISING);
}

#[test]
#[ignore = "millions of states"]
fn nothing_breaks_a_grace_period_with_everything_that_can_happen() {
    holds(World { looks: [true, true], ..World::new() });
    holds(World { claims: [2, 1], ticks: 5, renewals: [2, 2], ..World::new() });
    holds(World { crashes: 2, clock_steps: false, ticks: 6, ..World::new() });
}
