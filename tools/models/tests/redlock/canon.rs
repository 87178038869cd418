//! States that differ only in the names of claims and nodes have the same future: one of them stands for all.
//!
//! It need not always find the same one. What it finds is the same state under other names, so nothing is
//! overlooked; a tie that is broken badly only costs a second look.

use crate::state::{Claim, Holder, Line, Memory, Node, Phase, Repair, State};

impl State {
    /// This state, with claims and nodes in an order that follows from what they are, not from their names.
    pub(crate) fn canonical(&self) -> Self {
        let (claims, nodes) = self.order();
        self.reordered(&claims, &nodes)
    }

    /// That order: of the claims, and of the nodes.
    pub(crate) fn order(&self) -> (Vec<usize>, Vec<usize>) {
        let mut claims: Vec<usize> = (0..self.claims.len()).collect();
        claims.sort_by_cached_key(|&claim| self.face(claim));
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        nodes.sort_by_cached_key(|&node| self.column(node, &claims));
        (claims, nodes)
    }

    /// What can be said of a claim without naming a node or another claim.
    fn face(&self, index: usize) -> impl Ord {
        let claim = &self.claims[index];
        let phase = match claim.phase {
            Phase::Idle => 0,
            Phase::Asking(..) => 1,
            Phase::Failed => 2,
            Phase::Granted(token) => 10 + token,
            Phase::Ended(token) => 100 + token,
            Phase::Turning(token, _) => 1000 + token,
        };
        let lines = self.nodes.iter().zip(&claim.lines);
        let mut lines: Vec<_> = lines.map(|(node, line)| (node.holds(index), node.counter, line)).collect();
        lines.sort_unstable();
        let owner = self.resource.is_some_and(|(_, owner)| owner == index);
        let renewals = (claim.renewed, claim.extended.len(), claim.bare.len(), claim.forced);
        (
            phase,
            (claim.reads, claim.block, claim.floor),
            claim.after.len(),
            claim.wrote,
            owner,
            lines,
            renewals,
        )
    }

    /// All that concerns one node, once the claims are in order.
    fn column(&self, index: usize, claims: &[usize]) -> impl Ord {
        let lines: Vec<&Line> = claims.iter().map(|&claim| &self.claims[claim].lines[index]).collect();
        let repairs: Vec<_> = self.repairs.iter().map(|it| (it.node == index, it.read.has(index))).collect();
        let sets = |&claim: &usize| {
            let it = &self.claims[claim];
            [it.turns.has(index), it.extended.has(index), it.bare.has(index)]
        };
        let sets: Vec<_> = claims.iter().map(sets).collect();
        (self.nodes[index].reordered(claims), lines, sets, repairs, self.sweeps.has(index))
    }

    fn reordered(&self, claims: &[usize], nodes: &[usize]) -> Self {
        let place =
            |order: &[usize], from: usize| order.iter().position(|&it| it == from).expect("it is listed");
        let mut repairs: Vec<Repair> = self
            .repairs
            .iter()
            .map(|it| Repair { node: place(nodes, it.node), read: it.read.reordered(nodes), ..it.clone() })
            .collect();
        repairs.sort();
        Self {
            nodes: nodes.iter().map(|&node| self.nodes[node].reordered(claims)).collect(),
            claims: claims.iter().map(|&claim| self.claims[claim].reordered(claims, nodes)).collect(),
            repairs,
            sweeps: self.sweeps.reordered(nodes),
            resource: self.resource.map(|(token, owner)| (token, place(claims, owner))),
            ..*self
        }
    }
}

impl Node {
    fn reordered(&self, claims: &[usize]) -> Self {
        let memory = match self.memory {
            Memory::Whole => Memory::Whole,
            Memory::Lost { waits_for } => Memory::Lost { waits_for: waits_for.reordered(claims) },
        };
        let place = |owner: usize| claims.iter().position(|&it| it == owner);
        let holders = self.holders.iter();
        let mut holders: Vec<_> =
            holders.filter_map(|it| Some(Holder { claim: place(it.claim)?, ..*it })).collect();
        holders.sort_unstable();
        Self { holders, counter: self.counter, voted: self.voted.reordered(claims), memory }
    }
}

impl Claim {
    fn reordered(&self, claims: &[usize], nodes: &[usize]) -> Self {
        let phase = match &self.phase {
            Phase::Asking(tally, token) => Phase::Asking(tally.reordered(nodes), *token),
            Phase::Turning(token, turned) => Phase::Turning(*token, turned.reordered(nodes)),
            phase => phase.clone(),
        };
        let lines = nodes.iter().map(|&node| self.lines[node].clone()).collect();
        let (after, turns) = (self.after.reordered(claims), self.turns.reordered(nodes));
        let (extended, bare) = (self.extended.reordered(nodes), self.bare.reordered(nodes));
        Self { phase, turns, after, extended, bare, lines, ..*self }
    }
}
