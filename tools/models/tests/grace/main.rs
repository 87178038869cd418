//! The grace period, model-checked: a server whose grants come to the disk some time later crashes, with some
//! of them or without, and starts again, with its clock or with one that is wrong for some time.
//!
//! Every order of grants, renewals that arrive at any time or never, releases, crashes, and looks at the
//! mark. A replica that takes the place of the server lacks all changes of less than the longest lease, also
//! those that waited for the disk of the server. When a mark opens is not modelled: it is `backend/grace.rs`, the
//! code that production runs. Requests to raise its count arrive late and several times, and the processes that
//! count may end and begin anew. The row on the disk is that of any moment between the last sync and the crash.
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
    /// Whose grants wait for the disk.
    durable: [bool; PROCESSES],
    /// Whether there have been lazy grants for long, or are none yet.
    lazy_before: bool,
    /// Whether the answer to a claim may be lost.
    loses_answers: bool,
    /// How many tokens a claim of each reserves beside its own.
    reserved: [i16; PROCESSES],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Tick,
    Sync,
    Crash { clock_back: bool },
    Follow,
    FailOver,
    SetClockRight,
    Claim { who: usize, is_lost: bool },
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
            durable: [false, false],
            lazy_before: true,
            loses_answers: false,
            reserved: [0, 0],
        }
    }

    /// The second process has durable grants, and lazy ones begin.
    fn of_both() -> Self {
        Self {
            claims: [2, 1],
            renewals: [1, 0],
            ticks: 5,
            clock_steps: false,
            durable: [false, true],
            lazy_before: false,
            ..Self::new()
        }
    }

    /// Claims are repeated.
    fn of_lost_answers() -> Self {
        Self { claims: [2, 1], renewals: [0, 0], clock_steps: false, loses_answers: true, ..Self::new() }
    }

    /// Two crashes or failovers, and little else.
    fn of_two_crashes() -> Self {
        Self { renewals: [0, 0], ticks: 5, crashes: 2, clock_steps: false, has_replica: true, ..Self::new() }
    }

    /// The same without lazy grants.
    fn of_disk() -> Self {
        Self { claims: [2, 1], ticks: 4, durable: [true, true], lazy_before: false, ..Self::of_two_crashes() }
    }

    /// A replica may lack that lazy grants have begun.
    fn of_first_lazy() -> Self {
        Self { has_replica: true, ..Self::of_both() }
    }

    /// The same, and the tokens of the second process are ahead of the clock.
    fn of_reserved_tokens() -> Self {
        Self { claims: [1, 1], renewals: [2, 1], reserved: [0, 100], ..Self::of_first_lazy() }
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
        let mut state = State::new();
        if !self.lazy_before {
            (state.lazy_since, state.lazy_on_disk) = (None, None);
        }
        if self.has_replica {
            state.follow();
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        if (state.row, state.lazy_since) != (state.on_disk, state.lazy_on_disk) {
            actions.push(Action::Sync);
        }
        if state.crashes < self.crashes {
            actions.push(Action::Crash { clock_back: false });
            if self.clock_steps {
                actions.push(Action::Crash { clock_back: true });
            }
            if self.has_replica {
                actions.push(Action::Follow);
            }
            if state.can_fail_over() {
                actions.push(Action::FailOver);
            }
        }
        if !state.is_clock_settled {
            actions.push(Action::SetClockRight);
        }
        for (who, process) in state.processes.iter().enumerate() {
            let is_valid = process.hold.is_some_and(|hold| hold.until > state.now);
            if !is_valid && process.claims < self.claims[who] {
                actions.push(Action::Claim { who, is_lost: false });
                if self.loses_answers {
                    actions.push(Action::Claim { who, is_lost: true });
                }
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
            Action::Sync => state.sync(),
            Action::Crash { clock_back } => state.crash(clock_back),
            Action::Follow => state.follow(),
            Action::FailOver => state.fail_over(self.reserved != [0, 0]),
            Action::SetClockRight => state.set_clock_right(),
            Action::Claim { who, is_lost } => {
                state.claim(who, is_lost, self.durable[who], self.reserved[who], self.twist);
            }
            Action::AskToRenew(who) => state.ask_to_renew(who),
            Action::Renew(request) => {
                state.messages.remove(&request);
                state.renew(request, self.durable[request.who], self.twist);
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
    holds(World::of_both());
    holds(World::of_lost_answers());
    holds(World::of_disk());
    holds(World::of_first_lazy());
    holds(World::of_reserved_tokens());
}

/// The replica that takes the place of the server lacks that grants became lazy, and the grant after it.
#[test]
fn the_first_lazy_grant_has_the_token_of_a_durable_one() {
    breaks_in(World::of_first_lazy(), Twist::FloorsOpenMarks, RISING);
}

/// A crash loses that together with a grant.
#[test]
fn that_grants_are_lazy_waits_for_the_disk() {
    breaks_in(World { claims: [2, 2], ..World::of_both() }, Twist::SaidLazily, EXCLUSIVE);
}

/// A failover has lost the record, and another has been granted the lock with a lower token.
#[test]
fn what_a_crash_cannot_have_lost_is_not_reclaimed() {
    breaks_in(World::of_reserved_tokens(), Twist::ReclaimsAboveFloor, KEPT);
}

/// It has been lost with what says that there are such grants.
#[test]
fn the_first_lazy_grant_comes_late() {
    breaks_in(World::of_first_lazy(), Twist::LazyAtOnce, EXCLUSIVE);
}

#[test]
fn whoever_waits_for_the_disk_needs_the_mark_as_well() {
    breaks_in(World::of_both(), Twist::DurableGrantsWithoutMark, EXCLUSIVE);
}

#[test]
fn the_tables_say_first_that_grants_are_lazy() {
    breaks_in(World::of_both(), Twist::LazyUnsaid, EXCLUSIVE);
}

#[test]
fn a_mark_is_open_only_if_no_grant_was_lazy() {
    breaks_in(World::of_both(), Twist::OpensAnyway, EXCLUSIVE);
}

/// The grant after it is lost.
#[test]
fn an_own_row_of_before_a_crash_is_no_later_grant() {
    breaks_in(World::of_lost_answers(), Twist::KeepsOldToken, RISING);
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
    holds(World { claims: [2, 1], ..World::of_two_crashes() });
    holds(World { renewals: [1, 0], ..World::of_disk() });
    holds(World { claims: [2, 2], ticks: 6, ..World::of_both() });
}
