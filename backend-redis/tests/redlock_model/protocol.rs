//! What nodes and claims do with messages.

use crate::action::Action;
use crate::memory::Check;
use crate::model::{Detail, Redlock, Twist};
use crate::state::{INSTALLED, Line, Phase, REFUSED, Set, State};
use crate::tally::{Answer, Step, Tally};

impl Redlock {
    /// What can happen to the messages of one claim.
    pub(crate) fn claim_actions(&self, state: &State, claim: usize, actions: &mut Vec<Action>) {
        let it = &state.claims[claim];
        if it.phase == Phase::Idle {
            // Idle claims are all alike: the first of them is the next to begin.
            if state.claims[..claim].iter().all(|other| other.phase != Phase::Idle) {
                actions.extend(self.floors.iter().map(|&floor| Action::Begin { claim, floor }));
            }
            return;
        }
        if state.rounds > 0 && it.token().is_none() {
            actions.push(Action::Again { claim });
        }
        for (node, line) in it.lines.iter().enumerate() {
            let takes = self.check() != Check::AtTheNode || state.nodes[node].memory.is_whole();
            actions.extend((line.late_ask && takes).then_some(Action::Late { claim, node, raise: false }));
            actions.extend(line.late_raise.map(|_| Action::Late { claim, node, raise: true }));
        }
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
                actions.extend(line.answers.iter().map(|&answer| Action::Hear { claim, node, answer }));
            }
            if self.timeouts && !line.heard {
                actions.push(Action::Hear { claim, node, answer: Answer::Silent });
            }
            actions.extend(line.replies.members().map(|reply| Action::HearRaise {
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
            Action::Begin { claim, floor } => self.begin(claim, floor),
            Action::Ask { claim, node, again } => {
                let counts = self.nodes[node].memory.is_whole() || world.check() != Check::WhenGiven;
                let answer = self.vote(claim, node, twist);
                let line = &mut self.claims[claim].lines[node];
                line.ask = again;
                if let (Err(place), true) = (line.answers.binary_search(&answer), counts) {
                    line.answers.insert(place, answer);
                }
                self.duplicates -= u8::from(again);
            }
            Action::Hear { claim, node, answer } => self.hear(claim, node, answer, twist),
            Action::Raise { claim, node, again } => {
                let line = &mut self.claims[claim].lines[node];
                if let Some(token) = if again { line.raise } else { line.raise.take() } {
                    let reply = self.install(claim, node, token, twist);
                    self.claims[claim].lines[node].replies.add(reply);
                }
                self.duplicates -= u8::from(again);
            }
            Action::Again { claim } => self.again(claim),
            Action::Late { claim, node, raise: false } => {
                self.claims[claim].lines[node].late_ask = false;
                self.vote(claim, node, twist);
            }
            Action::Late { claim, node, raise: true } => {
                if let Some(token) = self.claims[claim].lines[node].late_raise.take() {
                    self.install(claim, node, token, twist);
                }
            }
            Action::HearRaise { claim, node, ok } => {
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

    fn begin(&mut self, claim: usize, floor: u64) {
        let after = self.granted();
        let tally = Tally::new(self.nodes.len());
        let it = &mut self.claims[claim];
        (it.floor, it.after, it.phase) = (floor, after, Phase::Asking(tally, None));
        for line in &mut it.lines {
            (line.ask, line.heard) = (true, false);
        }
    }

    /// Another round, with the same owner. What the last one sent is still under way; its answers are not.
    fn again(&mut self, claim: usize) {
        self.rounds -= 1;
        let floor = self.claims[claim].floor;
        for line in &mut self.claims[claim].lines {
            let (late_ask, late_raise) = (line.ask || line.late_ask, line.raise.or(line.late_raise));
            *line = Line { late_ask, late_raise, ..Line::default() };
        }
        self.begin(claim, floor);
    }

    /// The script of phase 1 at a node. Asked again, it answers with the number of the first time, or of phase 2.
    fn vote(&mut self, claim: usize, node: usize, twist: Option<Twist>) -> Answer {
        let it = &mut self.nodes[node];
        let number = match it.lock {
            Some((owner, number)) if owner == claim => number,
            Some(_) => return Answer::Held,
            None => {
                let number = (it.counter + 1).max(self.claims[claim].floor);
                if twist != Some(Twist::VoteWithoutRaise) {
                    it.counter = number;
                }
                number
            }
        };
        it.lock = Some((claim, number));
        if !self.claims[claim].is_over() {
            it.voted.add(claim);
        }
        Answer::Vote(number)
    }

    /// The script of phase 2 at a node.
    fn install(&mut self, claim: usize, node: usize, token: u64, twist: Option<Twist>) -> usize {
        let it = &mut self.nodes[node];
        if it.owner() != Some(claim) {
            REFUSED
        } else if it.counter < token {
            it.counter = token;
            it.lock = Some((claim, token));
            INSTALLED
        } else if twist == Some(Twist::HigherIsInstalled) {
            INSTALLED
        } else {
            REFUSED
        }
    }

    fn hear(&mut self, claim: usize, node: usize, answer: Answer, twist: Option<Twist>) {
        let it = &mut self.claims[claim];
        it.lines[node].heard = true;
        if let Phase::Asking(tally, token) = &mut it.phase {
            let answer = match (answer, *token) {
                (Answer::Vote(vote), Some(token)) if twist == Some(Twist::HigherIsInstalled) => {
                    Answer::Vote(vote.min(token))
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
