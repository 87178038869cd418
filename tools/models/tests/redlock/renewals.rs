//! Renewals, locks that are set again where they were lost, and what operators do by force.

use crate::action::Action;
use crate::model::{Clocks, EXCLUSIVE, Redlock, Twist};
use crate::search::{finds, holds};
use crate::state::{Holder, Phase, Set, State};

impl State {
    /// With right clocks: whether a lease may have ended within the validity of its owner. One from before
    /// the last renewal that was confirmed, and one of an earlier round.
    pub(crate) fn may_be_gone(&self, holder: &Holder) -> bool {
        let owner = &self.claims[holder.claim];
        owner.is_over() || owner.forced || holder.round < owner.round || holder.lease < owner.renewed
    }

    pub(crate) fn renewal_actions(&self, claim: usize, twist: Option<Twist>, actions: &mut Vec<Action>) {
        let it = &self.claims[claim];
        if matches!(it.phase, Phase::Granted(_)) {
            actions.extend((self.renewals > 0).then_some(Action::BeginRenewal { claim }));
            actions.extend((self.forces > 0).then_some(Action::Force { claim }));
            let enough = if twist == Some(Twist::RenewByMinority) { 1 } else { self.nodes.len() / 2 + 1 };
            actions.extend((it.extended.len() >= enough).then_some(Action::ReceiveRenewal { claim }));
        }
        for (node, line) in it.lines.iter().enumerate() {
            actions.extend(line.renew.map(|_| Action::Renew { claim, node }));
            actions.extend(line.reinstate.map(|_| Action::Reinstate { claim, node }));
        }
    }

    pub(crate) fn renewal(&mut self, action: Action, twist: Option<Twist>) {
        match action {
            Action::BeginRenewal { claim } => {
                self.renewals -= 1;
                let it = &mut self.claims[claim];
                (it.extended, it.bare) = Default::default();
                it.lines.iter_mut().for_each(|line| line.renew = Some(it.renewed + 1));
            }
            Action::Renew { claim, node } => self.renew(claim, node, twist),
            Action::ReceiveRenewal { claim } => {
                let it = &mut self.claims[claim];
                it.renewed += 1;
                for node in it.bare.members() {
                    it.lines[node].reinstate = Some(it.renewed);
                }
                (it.extended, it.bare) = Default::default();
            }
            Action::Reinstate { claim, node } => self.reinstate(claim, node),
            _ => unreachable!("{action:?} is no renewal"),
        }
    }

    /// The script of a renewal at a node.
    fn renew(&mut self, claim: usize, node: usize, twist: Option<Twist>) {
        let it = &mut self.claims[claim];
        let Some(lease) = it.lines[node].renew.take() else { return };
        let its = |holder: &&Holder| holder.round == it.round || twist == Some(Twist::RenewAnyRound);
        let found = self.nodes[node].holder(claim).filter(its).copied();
        // What comes after the answer of a majority extends the lease, and nobody waits for it.
        let counts = lease > it.renewed;
        match found {
            Some(holder) => {
                self.nodes[node].set(Holder { lease: lease.max(holder.lease), ..holder });
                if counts {
                    it.extended.add(node);
                }
            }
            None if counts => it.bare.add(node),
            None => (),
        }
    }

    /// The script that sets a lock again.
    fn reinstate(&mut self, claim: usize, node: usize) {
        let it = &mut self.claims[claim];
        let Some(lease) = it.lines[node].reinstate.take() else { return };
        let (Some(token), at) = (it.token(), &mut self.nodes[node]) else { return };
        let joins = it.reads && at.holders.iter().all(|other| other.reads) && !at.holds(claim);
        if at.holders.is_empty() || joins {
            at.counter = at.counter.max(token);
            at.set(Holder { claim, number: token, reads: it.reads, round: it.round, lease });
        }
    }

    pub(crate) fn force(&mut self, claim: usize, twist: Option<Twist>) {
        self.forces -= 1;
        self.claims[claim].forced = true;
        if twist == Some(Twist::ForceWhoever) {
            self.sweeps = (0..self.nodes.len()).fold(Set::default(), |mut nodes, node| {
                nodes.add(node);
                nodes
            });
        }
    }
}

fn right_clocks() -> Redlock {
    Redlock { clocks: Clocks::Honest, floors: &[0], ..Redlock::new(3, 2) }
}

#[test]
fn a_renewal_by_a_majority_keeps_the_lock() {
    holds(Redlock { renewals: 1, ..right_clocks() });
}

#[test]
fn a_renewal_by_less_than_a_majority_does_not() {
    let world = Redlock { renewals: 1, twist: Some(Twist::RenewByMinority), ..right_clocks() };
    finds(&world, EXCLUSIVE);
}

/// An earlier round's vote is renewed, and then given back.
#[test]
#[ignore = "half a minute without optimisation: cargo test --release -p models --test redlock -- --ignored"]
fn a_renewal_that_counts_any_round_does_not_keep_the_lock() {
    let world = Redlock { rounds: 1, renewals: 1, twist: Some(Twist::RenewAnyRound), ..right_clocks() };
    finds(&world, EXCLUSIVE);
}

#[test]
fn force_frees_whom_it_names() {
    holds(Redlock { forces: 1, ..right_clocks() });
}

#[test]
#[ignore = "100 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn force_that_is_repeated_without_a_name_frees_the_successor() {
    let world = Redlock { claims: 3, forces: 1, twist: Some(Twist::ForceWhoever), ..right_clocks() };
    finds(&world, EXCLUSIVE);
}

#[test]
#[ignore = "2 million states, 25 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn rounds_and_renewals_together() {
    holds(Redlock { rounds: 1, renewals: 1, ..right_clocks() });
}

#[test]
#[ignore = "a million states, 15 seconds: cargo test --release -p models --test redlock -- --ignored"]
fn two_renewals_of_readers_and_writers() {
    holds(Redlock { renewals: 2, ..right_clocks() }.with_readers());
}
