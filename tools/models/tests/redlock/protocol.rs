//! What nodes and claims do with messages.

use crate::action::{Action, Tardy};
use crate::memory::Check;
use crate::model::{Detail, Kinds, Redlock, Twist};
use crate::state::{Claim, Holder, INSTALLED, Line, Node, Phase, REFUSED, Set, State};
use crate::tally::{Step, Tally, VoteAnswer};

impl Redlock {
    /// What can happen to the messages of one claim.
    pub(crate) fn claim_actions(&self, state: &State, claim: usize, actions: &mut Vec<Action>) {
        let it = &state.claims[claim];
        if it.phase == Phase::Idle {
            // Idle claims are all alike: the first of them is the next to begin.
            if state.claims[..claim].iter().all(|other| other.phase != Phase::Idle) {
                for &floor in self.floors {
                    for &block in self.blocks {
                        let kinds = [false, true].into_iter().filter(|&reads| self.may_begin(state, reads));
                        actions.extend(kinds.map(|reads| Action::Begin { claim, floor, reads, block }));
                    }
                }
            }
            return;
        }
        if state.rounds > 0 && it.token().is_none() {
            actions.push(Action::Again { claim });
        }
        if self.kinds == Kinds::Downgrades {
            match it.phase {
                Phase::Granted(_) if !it.reads => actions.push(Action::StepDown { claim }),
                Phase::Turning(_, turned) if turned.len() > self.nodes / 2 => {
                    actions.push(Action::ReceiveTurns { claim });
                }
                _ => {}
            }
        }
        for (node, line) in it.lines.iter().enumerate() {
            actions.extend(it.turns.has(node).then_some(Action::Turn { claim, node }));
            let takes = self.check() != Check::AtTheNode || state.nodes[node].memory.is_whole();
            let asks = line.late.ask.members().filter(|_| takes).map(|round| Tardy::Ask(number(round)));
            let backs = line.late.back.members().map(|round| Tardy::Back(number(round)));
            let late = asks.chain(backs).chain(line.late.raise.map(|_| Tardy::Raise));
            actions.extend(late.map(|late| Action::Late { claim, node, late }));
        }
        state.renewal_actions(claim, self.twist, actions);
        if self.detail == Detail::Lean {
            return state.lean_actions(claim, self.check(), actions);
        }
        let may_repeat = state.duplicates > 0;
        for (node, line) in it.lines.iter().enumerate() {
            // A node that has lost its memory does not vote: a request that reaches it is lost.
            let takes = self.check() != Check::AtTheNode || state.nodes[node].memory.is_whole();
            if line.ask && takes {
                actions.push(Action::Ask { claim, node, again: false });
                actions.extend(may_repeat.then_some(Action::Ask { claim, node, again: true }));
            }
            if line.raise.is_some() {
                actions.push(Action::Raise { claim, node, again: false });
                actions.extend(may_repeat.then_some(Action::Raise { claim, node, again: true }));
            }
            if self.check() != Check::WhenHeard || state.nodes[node].memory.is_whole() {
                actions.extend(line.answers.iter().map(|&answer| Action::Receive { claim, node, answer }));
            }
            if self.timeouts && !line.received {
                actions.push(Action::Receive { claim, node, answer: VoteAnswer::Silent });
            }
            actions.extend(line.replies.members().map(|reply| Action::ReceiveRaise {
                claim,
                node,
                ok: reply == INSTALLED,
            }));
        }
    }
}

impl State {
    pub(crate) fn protocol(&mut self, action: Action, world: &Redlock) {
        let twist = world.twist;
        match action {
            Action::Begin { claim, floor, reads, block } => {
                let clock = self.claims.iter().filter_map(Claim::token).max().unwrap_or(0);
                let floor = if world.restarts > 0 { clock } else { floor };
                (self.claims[claim].reads, self.claims[claim].block) = (reads, block);
                self.begin(claim, floor);
            }
            Action::StepDown { claim } => self.step_down(claim),
            Action::Turn { claim, node } => self.turn(claim, node),
            Action::ReceiveTurns { claim } => {
                let it = &mut self.claims[claim];
                it.reads = true;
                it.phase = it.token().map_or(Phase::Failed, Phase::Granted);
            }
            Action::Ask { claim, node, again } => {
                let counts = self.nodes[node].memory.is_whole() || world.check() != Check::WhenGiven;
                let answer = self.vote(claim, node, self.claims[claim].round, world);
                let line = &mut self.claims[claim].lines[node];
                line.ask = again;
                if let (Err(place), true) = (line.answers.binary_search(&answer), counts) {
                    line.answers.insert(place, answer);
                }
                self.duplicates -= u8::from(again);
            }
            Action::Receive { claim, node, answer } => self.receive(claim, node, answer, twist),
            Action::Raise { claim, node, again } => {
                let line = &mut self.claims[claim].lines[node];
                if let Some(token) = if again { line.raise } else { line.raise.take() } {
                    let reply = self.install(claim, node, self.claims[claim].round, token, twist);
                    self.claims[claim].lines[node].replies.add(reply);
                }
                self.duplicates -= u8::from(again);
            }
            Action::Again { claim } => self.again(claim, world.gives_back()),
            Action::Late { claim, node, late: Tardy::Ask(round) } => {
                self.claims[claim].lines[node].late.ask.remove(round.into());
                self.vote(claim, node, round, world);
            }
            Action::Late { claim, node, late: Tardy::Back(round) } => {
                let its = |it: &Holder| it.round == round || twist == Some(Twist::GiveBackAnyRound);
                if self.nodes[node].holder(claim).is_some_and(its) {
                    self.nodes[node].free(claim);
                }
            }
            Action::Late { claim, node, late: Tardy::Raise } => {
                if let Some((round, token)) = self.claims[claim].lines[node].late.raise.take() {
                    self.install(claim, node, round, token, twist);
                }
            }
            Action::ReceiveRaise { claim, node, ok } => {
                let line = &mut self.claims[claim].lines[node];
                line.replies = Set::default();
                if let Phase::Asking(tally, _) = &mut self.claims[claim].phase {
                    let step = tally.installed(node, ok);
                    self.follow(claim, step);
                }
            }
            Action::End { claim } => {
                let it = &mut self.claims[claim];
                it.phase = it.token().map_or(Phase::Failed, Phase::Ended);
            }
            _ => unreachable!("{action:?} is no part of the protocol"),
        }
    }

    /// All nodes restart without what they had. Requests and answers that were under way ended with their
    /// connections, and no node votes before the leases that were held are over.
    pub(crate) fn restart(&mut self) {
        self.restarts -= 1;
        self.nodes.fill(Node::default());
        for it in &mut self.claims {
            it.phase = match it.phase {
                Phase::Idle => Phase::Idle,
                _ => it.token().map_or(Phase::Failed, Phase::Ended),
            };
            it.lines.fill(Line::default());
        }
    }

    fn begin(&mut self, claim: usize, floor: u64) {
        let after = self.granted();
        let tally = Tally::new(self.nodes.len());
        let it = &mut self.claims[claim];
        (it.floor, it.after, it.phase) = (floor, after, Phase::Asking(tally, None));
        for line in &mut it.lines {
            (line.ask, line.received) = (true, false);
        }
    }

    /// Another round, with the same owner. What the last one sent is still under way; its answers are not.
    fn again(&mut self, claim: usize, back: bool) {
        self.rounds -= 1;
        let (round, floor) = (self.claims[claim].round, self.claims[claim].floor);
        self.claims[claim].round += 1;
        for line in &mut self.claims[claim].lines {
            let mut late = line.late.clone();
            late.raise = line.raise.map(|token| (round, token)).or(late.raise);
            if line.ask {
                late.ask.add(round.into());
            }
            if back {
                late.back.add(round.into());
            }
            *line = Line { late, ..Line::default() };
        }
        self.begin(claim, floor);
    }

    /// The script of phase 1 at a node. Asked again, it answers with the number of the first time, or of
    /// phase 2. The claim's next round gets a new one.
    fn vote(&mut self, claim: usize, node: usize, round: u8, world: &Redlock) -> VoteAnswer {
        let twist = world.twist;
        let (it, &Claim { reads, block, floor, .. }) = (&mut self.nodes[node], &self.claims[claim]);
        let joins = match twist {
            Some(Twist::ReadersJoinWriters) => reads,
            Some(Twist::WritersJoinReaders) => it.holders.iter().all(|other| other.reads),
            _ => reads && it.holders.iter().all(|other| other.reads),
        };
        let counts = |holder: &Holder| match twist {
            Some(Twist::OldVotesCount) => holder.reads,
            Some(Twist::OldRecordsCount) => true,
            _ => false,
        };
        let number = match it.holder(claim).copied() {
            Some(holder) if holder.round == round => holder.number,
            Some(holder) if holder.round > round => {
                if twist != Some(Twist::LateVoteIsOfItsRound) {
                    return VoteAnswer::Held;
                }
                it.set(Holder { round, ..holder });
                holder.number
            }
            Some(holder) if counts(&holder) => {
                it.set(Holder { round, ..holder });
                holder.number
            }
            None if !it.holders.is_empty() && !joins => return VoteAnswer::Held,
            _ => {
                let number = match twist {
                    Some(Twist::FloorIsEnough) => (it.counter + block).max(floor),
                    _ => it.counter.max(floor) + block,
                };
                if twist != Some(Twist::VoteWithoutRaise) {
                    it.counter = number;
                }
                it.set(Holder { claim, number, reads, round, lease: 0 });
                number
            }
        };
        if !self.claims[claim].is_over() {
            it.voted.add(claim);
        }
        VoteAnswer::Vote(number)
    }

    /// The writer is no holder until it learns that it is a reader.
    fn step_down(&mut self, claim: usize) {
        let it = &mut self.claims[claim];
        it.phase = it.token().map_or(Phase::Failed, |token| Phase::Turning(token, Set::default()));
        (0..it.lines.len()).for_each(|node| it.turns.add(node));
    }

    /// The script of a downgrade at a node.
    fn turn(&mut self, claim: usize, node: usize) {
        let it = &mut self.claims[claim];
        it.turns.remove(node);
        if let Some(&holder) = self.nodes[node].holder(claim) {
            self.nodes[node].set(Holder { reads: true, ..holder });
            if let Phase::Turning(_, turned) = &mut it.phase {
                turned.add(node);
            }
        }
    }

    /// The script of phase 2 at a node.
    fn install(&mut self, claim: usize, node: usize, round: u8, token: u64, twist: Option<Twist>) -> usize {
        let it = &mut self.nodes[node];
        let lower = match twist {
            Some(Twist::RaiseByLess) => it.counter < token,
            _ => self.claims[claim].may_raise(it.counter, token),
        };
        let Some(&holder) = it.holder(claim).filter(|holder| holder.round == round) else { return REFUSED };
        if lower {
            it.counter = token;
            it.set(Holder { number: token, ..holder });
            INSTALLED
        } else if twist == Some(Twist::HigherIsInstalled) {
            INSTALLED
        } else {
            REFUSED
        }
    }

    fn receive(&mut self, claim: usize, node: usize, answer: VoteAnswer, twist: Option<Twist>) {
        let it = &mut self.claims[claim];
        it.lines[node].received = true;
        if let Phase::Asking(tally, token) = &mut it.phase {
            let answer = match (answer, *token) {
                (VoteAnswer::Vote(vote), Some(token)) if twist == Some(Twist::HigherIsInstalled) => {
                    VoteAnswer::Vote(vote.min(token))
                }
                _ => answer,
            };
            let step = tally.vote(node, answer);
            self.follow(claim, step);
        }
    }

    /// What a claim does when the tally says so.
    pub(crate) fn follow(&mut self, claim: usize, step: Step) {
        let it = &mut self.claims[claim];
        match step {
            Step::Wait => {}
            Step::Install { token, nodes } => {
                for node in nodes {
                    it.lines[node].raise = Some(token);
                }
                if let Phase::Asking(_, fixed) = &mut it.phase {
                    *fixed = Some(token);
                }
            }
            Step::Granted(token) => it.phase = Phase::Granted(token),
            Step::Failed(_) => it.phase = Phase::Failed,
        }
    }
}

fn number(member: usize) -> u8 {
    u8::try_from(member).expect("sets are small")
}
