//! The model: its configurations, the actions that are possible, and the properties that must hold.

use stateright::{Model, Property};

use crate::action::Action;
use crate::memory::{Check, Forgetting};
use crate::state::{Claim, Holder, Line, Node, Phase, Set, State};

pub(crate) const DISTINCT: &str = "the tokens of two grants differ";
pub(crate) const RISING: &str = "a claim that begins after a grant gets a higher token";
pub(crate) const FENCED: &str = "a stale writer is refused";
pub(crate) const DOUBLE: &str = "a writer and another consider themselves the holders";
pub(crate) const EXCLUSIVE: &str = "a writer is the only holder";
pub(crate) const TOGETHER: &str = "two readers hold the lock";

/// A configuration to be searched.
#[derive(Clone, Debug)]
pub(crate) struct Redlock {
    pub(crate) nodes: usize,
    pub(crate) claims: usize,
    pub(crate) kinds: Kinds,
    /// How many tokens a claim may want, each claim one of them.
    pub(crate) blocks: &'static [u64],
    /// The floors that a claim may send, each claim one of them.
    pub(crate) floors: &'static [u64],
    /// What the counter of a node may be at the start.
    pub(crate) counters: &'static [u64],
    pub(crate) clocks: Clocks,
    /// How many requests are duplicated.
    pub(crate) duplicates: u8,
    /// How many times a claim for another name raises a counter, where names share counters.
    pub(crate) strangers: u8,
    /// How many times a claim ends a round and tries again.
    pub(crate) rounds: u8,
    /// How many renewals are sent, and how many times an operator frees a lock by force.
    pub(crate) renewals: u8,
    pub(crate) forces: u8,
    /// How many times all nodes lose their counters at once. The floor of a claim is then the clock, which is
    /// not below what was granted.
    pub(crate) restarts: u8,
    /// Whether a claim may stop waiting for a node.
    pub(crate) timeouts: bool,
    /// Whether granted claims write to the resource.
    pub(crate) writes: bool,
    pub(crate) forgetting: Option<Forgetting>,
    pub(crate) twist: Option<Twist>,
    pub(crate) detail: Detail,
    /// Whether states that differ only in names are one, see `canon.rs`.
    pub(crate) merge: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// The lease at a node outlasts the validity of its owner.
    Honest,
    /// A lease may run out at any moment: the node's clock jumped, or the owner's stood still.
    Wrong,
}

/// How claims want to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    Writers,
    /// Each claim as a reader or as a writer.
    Both,
    /// So many readers, and the others are writers.
    Readers(usize),
    /// The same, and a writer may become a reader.
    Downgrades,
}

/// How closely messages are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Each on its own.
    Full,
    /// Only as far as it matters, see `lean.rs`.
    Lean,
}

/// Another rule than the one that was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// Phase 1 answers one more than the counter, and does not raise it.
    VoteWithoutRaise,
    /// A counter above the token counts as having installed it.
    HigherIsInstalled,
    /// Readers come in where a writer is.
    ReadersJoinWriters,
    /// Writers come in where readers are.
    WritersJoinReaders,
    /// A reader's vote of an earlier round counts in a later one.
    OldVotesCount,
    /// Phase 2 raises a counter also by less than the tokens that are wanted.
    RaiseByLess,
    /// Phase 1 raises a counter to the floor, and not by the tokens that are wanted from there.
    FloorIsEnough,
    /// A request of an earlier round that comes late makes the lock one of that round again.
    LateVoteIsOfItsRound,
    /// What gives a vote back does not say of which round.
    GiveBackAnyRound,
    /// A renewal counts what any round of the claim has.
    RenewAnyRound,
    /// What an earlier round has counts for a writer, too, in a later one.
    OldRecordsCount,
    /// The validity is extended by a renewal that no majority has confirmed.
    RenewByMinority,
    /// An operator's request does not name whom it frees, and is repeated.
    ForceWhoever,
}

impl Redlock {
    /// Wrong clocks, two floors, and nothing else out of the ordinary.
    pub(crate) fn new(nodes: usize, claims: usize) -> Self {
        Self {
            nodes,
            claims,
            kinds: Kinds::Writers,
            blocks: &[1],
            floors: &[0, 2],
            counters: &[0],
            clocks: Clocks::Wrong,
            duplicates: 0,
            strangers: 0,
            rounds: 0,
            renewals: 0,
            forces: 0,
            restarts: 0,
            timeouts: false,
            writes: false,
            forgetting: None,
            twist: None,
            detail: Detail::Full,
            merge: true,
        }
    }

    pub(crate) fn lean(nodes: usize, claims: usize) -> Self {
        Self { detail: Detail::Lean, ..Self::new(nodes, claims) }
    }

    /// The same with readers among the claims.
    pub(crate) fn with_readers(self) -> Self {
        Self { kinds: Kinds::Both, ..self }
    }

    /// The same with writers that become readers, too.
    pub(crate) fn with_downgrades(self) -> Self {
        Self { kinds: Kinds::Downgrades, ..self }
    }

    /// Whether one more claim may begin as a reader, or as a writer.
    pub(crate) fn may_begin(&self, state: &State, reads: bool) -> bool {
        let begun = state.claims.iter().filter(|it| it.phase != Phase::Idle && it.reads == reads).count();
        match self.kinds {
            Kinds::Writers => !reads,
            Kinds::Both | Kinds::Downgrades => true,
            Kinds::Readers(readers) => begun < if reads { readers } else { self.claims - readers },
        }
    }

    /// Whether it matters that a claim is over: a right clock or a node that waits for it depends on that.
    fn claims_end(&self) -> bool {
        self.clocks == Clocks::Honest || self.forgetting.is_some()
    }

    /// Whether the votes of an earlier round are given back by requests of their own, which may come late.
    /// Where clocks are wrong, they may be gone at any moment anyway.
    pub(crate) fn gives_back(&self) -> bool {
        self.clocks == Clocks::Honest && self.rounds > 0
    }

    pub(crate) fn check(&self) -> Check {
        self.forgetting.map_or(Check::AtTheNode, |it| it.check)
    }

    /// Every choice of counters at the start. Nodes are alike, so their order does not matter.
    fn starts(&self) -> Vec<Vec<u64>> {
        (0..self.nodes).fold(vec![Vec::new()], |starts, _| {
            let longer = |start: &Vec<u64>| {
                let low = start.last().copied().unwrap_or(0);
                let fits = self.counters.iter().filter(move |&&counter| counter >= low);
                let start = start.clone();
                fits.map(move |&counter| [start.as_slice(), &[counter]].concat()).collect::<Vec<_>>()
            };
            starts.iter().flat_map(longer).collect()
        })
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claim = Claim {
            phase: Phase::Idle,
            reads: false,
            block: 1,
            round: 0,
            turns: Set::default(),
            floor: 0,
            after: Set::default(),
            wrote: false,
            renewed: 0,
            extended: Set::default(),
            bare: Set::default(),
            forced: false,
            lines: vec![Line::default(); self.nodes],
        };
        let start = |counters: Vec<u64>| {
            let mut state = State {
                nodes: counters.into_iter().map(|counter| Node { counter, ..Node::default() }).collect(),
                claims: vec![claim.clone(); self.claims],
                repairs: Vec::new(),
                resource: None,
                duplicates: self.duplicates,
                strangers: self.strangers,
                rounds: self.rounds,
                losses: self.forgetting.map_or(0, |it| it.losses),
                renewals: self.renewals,
                forces: self.forces,
                restarts: self.restarts,
                sweeps: Set::default(),
            };
            state.tidy();
            state
        };
        self.starts().into_iter().map(start).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for claim in 0..self.claims {
            self.claim_actions(state, claim, actions);
            let open = state.claims[claim].phase.is_open();
            if self.claims_end() && open {
                actions.push(Action::End { claim });
            }
            if self.writes && state.accepts(claim) && state.resource.map(|it| it.1) != Some(claim) {
                actions.push(Action::Write { claim });
            }
        }
        for (node, it) in state.nodes.iter().enumerate() {
            if state.strangers > 0 && it.memory.is_whole() {
                actions.push(Action::Stranger { node });
            }
            let may_expire = |holder: &&Holder| match self.detail {
                Detail::Full => self.clocks == Clocks::Wrong || state.may_be_gone(holder),
                Detail::Lean => self.rounds > 0,
            };
            let gone = it.holders.iter().filter(may_expire);
            actions.extend(gone.map(|holder| Action::Expire { node, claim: holder.claim }));
            actions.extend(state.sweeps.has(node).then_some(Action::Sweep { node }));
        }
        if state.restarts > 0 {
            actions.push(Action::Restart);
        }
        if let Some(forgetting) = self.forgetting {
            forgetting.actions(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        if self.detail == Detail::Lean {
            state.lean_expiry(action);
        }
        match action {
            Action::Expire { node, claim } => state.nodes[node].free(claim),
            Action::Sweep { node } => state.nodes[node].holders.clear(),
            Action::Force { claim } => state.force(claim, self.twist),
            Action::BeginRenewal { .. }
            | Action::Renew { .. }
            | Action::ReceiveRenewal { .. }
            | Action::Reinstate { .. } => state.renewal(action, self.twist),
            Action::Restart => state.restart(),
            Action::Stranger { node } => {
                state.nodes[node].counter += 1;
                state.strangers -= 1;
            }
            Action::Write { claim } => {
                state.resource = state.claims[claim].token().map(|token| (token, claim));
                state.claims[claim].wrote = true;
            }
            Action::Begin { .. }
            | Action::Ask { .. }
            | Action::Receive { .. }
            | Action::Raise { .. }
            | Action::ReceiveRaise { .. }
            | Action::Again { .. }
            | Action::Late { .. }
            | Action::StepDown { .. }
            | Action::Turn { .. }
            | Action::ReceiveTurns { .. }
            | Action::End { .. } => state.protocol(action, self),
            Action::ReceiveVotes { claim, nodes } => state.hear_votes(claim, nodes),
            Action::ReceiveInstalls { claim } => state.hear_installs(claim),
            _ => state.memory(action, self.forgetting?),
        }
        state.tidy();
        if self.detail == Detail::Lean {
            state.lean_tidy(self);
        }
        Some(if self.merge { state.canonical() } else { state })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(DISTINCT, |_, state| distinct(state)),
            Property::always(RISING, |_, state| rising(state)),
        ];
        if self.writes {
            properties.push(Property::always(FENCED, |_, state| fenced(state)));
        }
        properties.push(match self.clocks {
            Clocks::Wrong => Property::sometimes(DOUBLE, |_, state: &State| !excluded(state)),
            Clocks::Honest => Property::always(EXCLUSIVE, |_, state: &State| excluded(state)),
        });
        if !matches!(self.kinds, Kinds::Writers | Kinds::Readers(0 | 1)) {
            let meet = |_: &Self, state: &State| holders(state).filter(|it| it.reads).count() > 1;
            properties.push(Property::sometimes(TOGETHER, meet));
        }
        properties
    }
}

fn distinct(state: &State) -> bool {
    let mut blocks: Vec<_> = state.claims.iter().filter_map(|it| Some((it.base()?, it.token()?))).collect();
    blocks.sort_unstable();
    blocks.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

fn rising(state: &State) -> bool {
    pairs(state).all(|(earlier, later)| later.base() >= earlier.token())
}

/// Once a claim has written that began after another was granted, the other one is refused.
fn fenced(state: &State) -> bool {
    let mut claims = state.claims.iter().filter(|claim| claim.wrote);
    claims.all(|later| (0..state.claims.len()).all(|index| !later.after.has(index) || !state.accepts(index)))
}

/// All pairs of granted claims of which the second began after the first had been granted.
fn pairs(state: &State) -> impl Iterator<Item = (&Claim, &Claim)> {
    let granted = state.claims.iter().filter(|claim| claim.token().is_some());
    granted.flat_map(|later| {
        let earlier = state.claims.iter().enumerate().filter(|(index, _)| later.after.has(*index));
        earlier.map(move |(_, earlier)| (earlier, later))
    })
}

fn holders(state: &State) -> impl Iterator<Item = &Claim> {
    // A claim that an operator frees by force stays valid until its next renewal.
    state.claims.iter().filter(|claim| claim.is_valid() && !claim.forced)
}

/// Whether no writer is a holder beside another.
fn excluded(state: &State) -> bool {
    holders(state).all(|it| it.reads) || holders(state).count() <= 1
}
