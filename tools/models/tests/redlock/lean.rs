//! A leaner world that reaches the same grants, for the bigger searches: wrong clocks, no duplicates, no
//! timeouts.
//!
//! What is left out can be seen by nobody but the claim itself, or is the same as a message that never
//! arrives:
//!
//! * The answers `Held` and `Refused` bring no grant nearer, so they are lost. A request that would be
//!   answered so is lost too. What remains of a lease that runs out is that somebody else may take the lock:
//!   a node votes for whoever asks, and the lock is the last one's.
//! * A vote that makes no majority changes nothing outside the claim. So the claim receives a majority of
//!   votes in one step, and later ones one by one, since they may lead to a request of phase 2.
//! * In the same way it receives the answers to phase 2 in one step, when they decide.
//!
//! `tokens::the_lean_world_reaches_the_same_grants` compares both.

use crate::action::{Action, Tardy};
use crate::memory::Check;
use crate::model::Redlock;
use crate::state::{Claim, INSTALLED, Phase, Set, State};
use crate::tally::{Step, VoteAnswer};

impl State {
    pub(crate) fn lean_actions(&self, claim: usize, check: Check, actions: &mut Vec<Action>) {
        let it = &self.claims[claim];
        let whole = |node: usize| self.nodes[node].memory.is_whole();
        let counts = |&node: &usize| it.vote(node).is_some() && (check != Check::WhenHeard || whole(node));
        for (node, line) in it.lines.iter().enumerate() {
            if line.ask && (check != Check::AtTheNode || whole(node)) {
                actions.push(Action::Ask { claim, node, again: false });
            }
            let lower = line.raise.is_some_and(|token| it.may_raise(self.nodes[node].counter, token));
            if lower && self.nodes[node].holds(claim) {
                actions.push(Action::Raise { claim, node, again: false });
            }
        }
        match &it.phase {
            Phase::Asking(tally, None) => {
                let mut voters = Set::default();
                (0..self.nodes.len()).filter(counts).for_each(|node| voters.add(node));
                let majorities = voters.subsets().filter(|set| set.len() == tally.majority());
                actions.extend(majorities.map(|nodes| Action::ReceiveVotes { claim, nodes }));
            }
            Phase::Asking(..) => {
                for node in (0..self.nodes.len()).filter(counts) {
                    actions.extend(it.vote(node).map(|vote| Action::Receive {
                        claim,
                        node,
                        answer: VoteAnswer::Vote(vote),
                    }));
                }
                if let Step::Granted(_) = it.heard_installs() {
                    actions.push(Action::ReceiveInstalls { claim });
                }
            }
            _ => {}
        }
    }

    /// A request of phase 1 comes when the locks that forbid it have just gone, or it is as good as lost.
    pub(crate) fn lean_expiry(&mut self, action: Action) {
        if let Action::Ask { claim, node, .. } | Action::Late { claim, node, late: Tardy::Ask(_) } = action
            && !self.nodes[node].holds(claim)
        {
            let reads = self.claims[claim].reads;
            self.nodes[node].holders.retain(|it| reads && it.reads);
        }
    }

    /// Drops requests of phase 2 that can only be refused, and locks that matter to none.
    pub(crate) fn lean_tidy(&mut self, world: &Redlock) {
        for (index, claim) in self.claims.iter_mut().enumerate() {
            let block = claim.block;
            let needs_lock = match claim.phase {
                Phase::Granted(_) | Phase::Turning(..) => world.forgetting.is_some(),
                Phase::Failed => self.rounds > 0,
                Phase::Idle | Phase::Asking(..) => true,
                Phase::Ended(_) => false,
            };
            for (node, line) in self.nodes.iter_mut().zip(&mut claim.lines) {
                let ours = node.holds(index);
                // In another round, the lock may be ours again before the request comes.
                if world.rounds == 0 {
                    line.raise = line.raise.filter(|&token| ours && node.counter + block <= token);
                }
                if ours && !needs_lock && line.raise.is_none() && line.late.raise.is_none() {
                    node.free(index);
                }
            }
        }
    }

    pub(crate) fn hear_votes(&mut self, claim: usize, nodes: Set) {
        let it = &mut self.claims[claim];
        let mut step = Step::Wait;
        for node in 0..it.lines.len() {
            let vote = it.vote(node).filter(|_| nodes.has(node));
            if let (Some(vote), Phase::Asking(tally, _)) = (vote, &mut it.phase) {
                step = tally.vote(node, VoteAnswer::Vote(vote));
                it.lines[node].received = true;
            }
        }
        self.follow(claim, step);
    }

    pub(crate) fn hear_installs(&mut self, claim: usize) {
        let step = self.claims[claim].heard_installs();
        self.follow(claim, step);
    }
}

impl Claim {
    /// Whether this claim may raise a counter from the one number to the other in phase 2.
    pub(crate) fn may_raise(&self, counter: u64, token: u64) -> bool {
        counter + self.block <= token
    }

    /// The vote of a node that is under way to the claim.
    fn vote(&self, node: usize) -> Option<u64> {
        match self.lines[node].answers.first() {
            Some(VoteAnswer::Vote(vote)) => Some(*vote),
            _ => None,
        }
    }

    /// What the tally says once it has received all answers to phase 2.
    fn heard_installs(&self) -> Step {
        let mut step = Step::Wait;
        if let Phase::Asking(tally, _) = &self.phase {
            let mut tally = tally.clone();
            for node in (0..self.lines.len()).filter(|&node| self.lines[node].replies.has(INSTALLED)) {
                step = tally.installed(node, true);
            }
        }
        step
    }
}
