//! Nodes that lose their memory, lock and counter, and what must happen before they vote again.

use crate::action::Action;
use crate::state::{Memory, Node, Phase, Repair, Set, State};

/// The rule for nodes that have lost their memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgetting {
    /// How many times a node loses its memory.
    pub(crate) losses: u8,
    /// Redlock's delayed restart: no vote until every claim is over that had its vote before.
    pub(crate) delay: bool,
    pub(crate) check: Check,
    pub(crate) repair: Option<Repairing>,
}

/// Who sees to it that a node has no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The script itself, which changes nothing then.
    AtTheNode,
    /// The node sets the lock, and raises its counter; the claim knows that this vote does not count.
    WhenGiven,
    /// The same, and the claim asks whether the node has a vote when it receives the answer.
    WhenHeard,
}

/// No vote until the counter has been raised to the highest counter of some others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repairing {
    /// How many other nodes are read.
    pub(crate) reads: usize,
    /// Whether a node that has lost its memory itself is read like any other.
    pub(crate) from_lost: bool,
    /// Whether the reading begins only after the delay.
    pub(crate) after_delay: bool,
    /// Whether a repair is void when the node has lost its memory again since it began.
    pub(crate) same_run: bool,
    /// How many repairs run at a time.
    pub(crate) at_once: usize,
}

impl Forgetting {
    /// A node that has lost its memory votes at once.
    pub(crate) fn carefree() -> Self {
        Self { losses: 1, delay: false, check: Check::AtTheNode, repair: None }
    }

    /// Redlock's rule.
    pub(crate) fn delayed() -> Self {
        Self { delay: true, ..Self::carefree() }
    }

    /// Delayed restart, and then the counters of a majority, read from nodes that have not forgotten.
    pub(crate) fn repaired(nodes: usize) -> Self {
        let repair = Repairing {
            reads: nodes / 2 + 1,
            from_lost: false,
            after_delay: true,
            same_run: true,
            at_once: 1,
        };
        Self { repair: Some(repair), ..Self::delayed() }
    }

    /// The same with another way to repair.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Repairing)) -> Self {
        if let Some(repair) = &mut self.repair {
            change(repair);
        }
        self
    }

    fn waited(self, node: &Node) -> bool {
        matches!(node.memory, Memory::Lost { waits_for } if !self.delay || waits_for.is_empty())
    }

    pub(crate) fn actions(self, state: &State, actions: &mut Vec<Action>) {
        for (index, node) in state.nodes.iter().enumerate() {
            if state.losses > 0 {
                actions.push(Action::Forget { node: index });
            }
            match self.repair {
                None if self.waited(node) => actions.push(Action::Return { node: index }),
                Some(rule) if !node.memory.is_whole() && state.repairs.len() < rule.at_once => {
                    let may_begin = !rule.after_delay || self.waited(node);
                    actions.extend(may_begin.then_some(Action::BeginRepair { node: index }));
                }
                _ => {}
            }
        }
        for claim in 0..state.claims.len() {
            if state.can_extend(claim) {
                actions.push(Action::Extend { claim });
            }
        }
        if let Some(rule) = self.repair {
            for (index, repair) in state.repairs.iter().enumerate() {
                self.repair_actions(rule, state, index, repair, actions);
            }
        }
    }

    fn repair_actions(
        self,
        rule: Repairing,
        state: &State,
        index: usize,
        repair: &Repair,
        actions: &mut Vec<Action>,
    ) {
        if repair.read.len() < rule.reads {
            for (node, it) in state.nodes.iter().enumerate() {
                if node != repair.node && (it.memory.is_whole() || rule.from_lost) && !repair.read.has(node) {
                    actions.push(Action::Read { repair: index, node });
                }
            }
        } else {
            let node = &state.nodes[repair.node];
            // Another repair may have been faster. This one raises the counter all the same.
            if node.memory.is_whole() || self.waited(node) {
                actions.push(Action::EndRepair { repair: index });
            }
        }
    }
}

impl State {
    pub(crate) fn memory(&mut self, action: Action, rule: Forgetting) {
        match action {
            Action::Forget { node } => self.forget(node, rule),
            Action::Return { node } => self.nodes[node].memory = Memory::Whole,
            Action::BeginRepair { node } => {
                self.repairs.push(Repair { node, read: Set::default(), highest: 0, outdated: false });
            }
            Action::Read { repair, node } => {
                let counter = self.nodes[node].counter;
                let repair = &mut self.repairs[repair];
                repair.read.add(node);
                repair.highest = repair.highest.max(counter);
            }
            Action::EndRepair { repair } => {
                let repair = self.repairs.remove(repair);
                let node = &mut self.nodes[repair.node];
                node.counter = node.counter.max(repair.highest);
                node.memory = Memory::Whole;
            }
            Action::Extend { claim } => {
                for node in &mut self.nodes {
                    if let Memory::Lost { waits_for } = &mut node.memory {
                        waits_for.remove(claim);
                    }
                }
            }
            _ => unreachable!("{action:?} has nothing to do with memory"),
        }
    }

    fn forget(&mut self, node: usize, rule: Forgetting) {
        self.losses -= 1;
        let it = &mut self.nodes[node];
        let mut waits_for = it.voted;
        if let Memory::Lost { waits_for: earlier } = it.memory {
            // It was waiting already: it goes on, and forgets nobody.
            earlier.members().for_each(|claim| waits_for.add(claim));
        }
        let memory =
            if rule.delay || rule.repair.is_some() { Memory::Lost { waits_for } } else { Memory::Whole };
        *it = Node { memory, ..Node::default() };
        for repair in self.repairs.iter_mut().filter(|repair| repair.node == node) {
            repair.outdated = true;
        }
        if rule.repair.is_some_and(|repair| repair.same_run) {
            self.repairs.retain(|repair| !repair.outdated);
        }
    }

    /// A holder that has extended its leases at a majority no longer depends on a node that forgot it: it may
    /// stay valid for longer than that node waits.
    fn can_extend(&self, claim: usize) -> bool {
        let lost = |node: &Node| matches!(node.memory, Memory::Lost { waits_for } if waits_for.has(claim));
        let held = self.nodes.iter().filter(|node| node.holds(claim)).count();
        matches!(self.claims[claim].phase, Phase::Granted(_))
            && self.nodes.iter().any(lost)
            && held > self.nodes.len() / 2
    }
}
