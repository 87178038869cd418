//! What nodes and claims do with messages.

use crate::action::Action;
use crate::model::{Redlock, Twist};
use crate::state::{Phase, State};
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
        if self.lean {
            return state.lean_actions(claim, actions);
        }
        let may_repeat = state.duplicates > 0;
        for (node, line) in it.lines.iter().enumerate() {
            // A node that has lost its memory does not vote: a request that reaches it is lost.
            if line.ask && state.nodes[node].memory.is_whole() {
                actions.push(Action::Ask { claim, node, again: false });
                actions.extend(may_repeat.then_some(Action::Ask { claim, node, again: true }));
            }
            if line.raise.is_some() {
                actions.push(Action::Raise { claim, node, again: false });
                actions.extend(may_repeat.then_some(Action::Raise { claim, node, again: true }));
            }
            actions.extend(line.answers.iter().map(|&answer| Action::Hear { claim, node, answer }));
            if self.timeouts && !line.heard {
                actions.push(Action::Hear { claim, node, answer: Answer::Silent });
            }
            actions.extend(line.installed.then_some(Action::HearRaise { claim, node, ok: true }));
            actions.extend(line.refused.then_some(Action::HearRaise { claim, node, ok: false }));
        }
    }
}

impl State {
    pub(crate) fn protocol(&mut self, action: Action, twist: Option<Twist>) {
        match action {
            Action::Begin { claim, floor } => self.begin(claim, floor),
            Action::Ask { claim, node, again } => self.ask(claim, node, again, twist),
            Action::Hear { claim, node, answer } => self.hear(claim, node, answer, twist),
            Action::Raise { claim, node, again } => self.raise(claim, node, again, twist),
            Action::HearRaise { claim, node, ok } => {
                let line = &mut self.claims[claim].lines[node];
                (line.installed, line.refused) = (false, false);
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

    /// The script of phase 1 at a node.
    fn ask(&mut self, claim: usize, node: usize, again: bool, twist: Option<Twist>) {
        let (it, over) = (&mut self.nodes[node], self.claims[claim].is_over());
        let answer = if it.lock == Some(claim) && twist == Some(Twist::RepeatWithoutRaise) {
            Answer::Vote(it.counter)
        } else if it.lock.is_none_or(|owner| owner == claim) {
            let vote = (it.counter + 1).max(self.claims[claim].floor);
            it.lock = Some(claim);
            if twist != Some(Twist::VoteWithoutRaise) {
                it.counter = vote;
            }
            if !over {
                it.voted.add(claim);
            }
            Answer::Vote(vote)
        } else {
            Answer::Held
        };
        let line = &mut self.claims[claim].lines[node];
        line.ask = again;
        if let Err(place) = line.answers.binary_search(&answer) {
            line.answers.insert(place, answer);
        }
        self.duplicates -= u8::from(again);
    }

    /// The script of phase 2 at a node.
    fn raise(&mut self, claim: usize, node: usize, again: bool, twist: Option<Twist>) {
        let line = &mut self.claims[claim].lines[node];
        let Some(token) = line.raise else { return };
        let it = &mut self.nodes[node];
        let ours = it.lock == Some(claim);
        if ours && it.counter < token {
            it.counter = token;
            line.installed = true;
        } else if ours && twist == Some(Twist::HigherIsInstalled) {
            line.installed = true;
        } else {
            line.refused = true;
        }
        if !again {
            line.raise = None;
        }
        self.duplicates -= u8::from(again);
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
