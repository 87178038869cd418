//! The tally: a pure state machine that decides one round of a Redlock claim.
//!
//! It never reads a clock and does no I/O: answers go in, the next step comes out. `tools/models/tests/redlock`
//! runs this very code through every order of messages.
//!
//! A claim asks every node in phase 1. A node that votes has set the lock to the claim and has *raised* its
//! counter, by that claim, to exactly the number that it answers. When the votes reach a majority, the token
//! is fixed: the highest vote seen by then. A node has *installed* the token when its own raise gave exactly
//! that number, or when phase 2 ("if the lock is still ours and the counter is lower, raise it to the token")
//! says so. The claim is granted when a majority has installed its token. When all answers agree there is no
//! phase 2.
//!
//! Why tokens rise, without any assumption about time, as long as no node forgets its counter (what must be
//! done before one that did may vote again: `tools/models/tests/redlock/forgetful.rs`):
//!
//! * Every granted token is installed at a majority, each time by an event that strictly raises that node's
//!   counter to that very value. This is why a counter that is *already* as high as the token does not count.
//! * Two majorities share a node, and two strict raises of one counter never end at the same value. So the
//!   tokens of two grants differ.
//! * A claim that begins after another was granted raises the counter of the shared node later, so its token
//!   is higher.
//!
//! A claim that wants several tokens raises every counter by as many at least, in both phases: the tokens
//! below its own are its own, too. Readers who hold the lock together raise the counters like anybody else.
//! But a vote that a reader has from an earlier round is no raise of this round, and it gets another: see
//! `scripts/redlock/claim.lua`.

use std::cmp::Ordering;

/// What a node answered in phase 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum VoteAnswer {
    /// The lock was free or ours already. It is ours now, and our claim raised the counter to exactly this
    /// number.
    Vote(u64),
    /// Another holds the lock.
    Held,
    /// No answer in time, an error, or a node that has no right to vote.
    Silent,
}

/// What the claim does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until the next answer.
    Wait,
    /// Ask these nodes for phase 2. It lists each node once, and may come more than once.
    Install { token: u64, nodes: Vec<usize> },
    /// A majority has installed this token. The claim holds the lock if its time is not over.
    Granted(u64),
    /// The round cannot be won any more, whatever the remaining nodes answer.
    Failed(Why),
}

/// Why a round failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Another holds the lock, and the remaining nodes are no majority.
    Held,
    /// Too few nodes can vote, whoever holds the lock.
    TooFewAnswers { silent: usize, nodes: usize },
    /// A majority voted, but too few of them installed the token: another claim raised a counter in between,
    /// a lease ran out, or an answer was lost. Try again after a random pause.
    NotInstalled,
}

/// What is known of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node {
    /// Asked in phase 1.
    Asked,
    Held,
    Silent,
    /// Voted before the token was fixed.
    Voted(u64),
    /// Voted lower than the token: asked in phase 2.
    Raising,
    Installed,
    /// Voted, but cannot install the token, or did not say that it has.
    Missed,
}

/// The answers to one claim so far.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tally {
    nodes: Vec<Node>,
    token: Option<u64>,
}

/// The majority of this number of nodes.
pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

impl Tally {
    /// A claim that asks this many nodes: an odd number, since an even one survives no more failures than the
    /// odd one below it.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: vec![Node::Asked; nodes], token: None }
    }

    /// How many nodes make a majority.
    pub(crate) fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// At how many nodes another holds the lock.
    pub(crate) fn held(&self) -> usize {
        self.count(|node| node == Node::Held)
    }

    /// Takes an answer to phase 1. The first answer of a node counts, also when it was `Silent`: what failed
    /// stays failed, and a vote that comes late is released like any other.
    pub(crate) fn vote(&mut self, node: usize, answer: VoteAnswer) -> Step {
        if self.nodes[node] == Node::Asked {
            self.nodes[node] = match answer {
                VoteAnswer::Vote(number) => Node::Voted(number),
                VoteAnswer::Held => Node::Held,
                VoteAnswer::Silent => Node::Silent,
            };
        }
        self.step()
    }

    /// Takes an answer to phase 2: `ok` only if the node said that it raised its counter to the token just
    /// now.
    pub(crate) fn installed(&mut self, node: usize, ok: bool) -> Step {
        if self.nodes[node] == Node::Raising {
            self.nodes[node] = if ok { Node::Installed } else { Node::Missed };
        }
        self.step()
    }

    fn step(&mut self) -> Step {
        let Some(token) = self.fix_token() else {
            let possible = self.count(|node| matches!(node, Node::Asked | Node::Voted(_)));
            return if possible < self.majority() { Step::Failed(self.why()) } else { Step::Wait };
        };
        let nodes = self.sort_votes(token);
        let installed = self.count(|node| node == Node::Installed);
        let possible = self.count(|node| matches!(node, Node::Asked | Node::Raising));
        if installed >= self.majority() {
            Step::Granted(token)
        } else if installed + possible < self.majority() {
            Step::Failed(Why::NotInstalled)
        } else if nodes.is_empty() {
            Step::Wait
        } else {
            Step::Install { token, nodes }
        }
    }

    /// The token, once a majority has voted. It never changes afterwards: what was installed would be worth
    /// nothing.
    fn fix_token(&mut self) -> Option<u64> {
        if self.token.is_none() && self.count(|node| matches!(node, Node::Voted(_))) >= self.majority() {
            let votes = self.nodes.iter().filter_map(|node| match node {
                Node::Voted(number) => Some(*number),
                _ => None,
            });
            self.token = votes.max();
        }
        self.token
    }

    /// Decides for each new vote whether it has installed the token, and returns the nodes that phase 2 must
    /// ask.
    fn sort_votes(&mut self, token: u64) -> Vec<usize> {
        let mut ask = Vec::new();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if let Node::Voted(number) = *node {
                *node = match number.cmp(&token) {
                    Ordering::Equal => Node::Installed,
                    Ordering::Less => {
                        ask.push(index);
                        Node::Raising
                    }
                    // Its counter passed the token without ever being raised to it.
                    Ordering::Greater => Node::Missed,
                };
            }
        }
        ask
    }

    /// Held, if the nodes that did not fail would have been enough.
    fn why(&self) -> Why {
        let (silent, nodes) = (self.count(|node| node == Node::Silent), self.nodes.len());
        if nodes - silent >= self.majority() { Why::Held } else { Why::TooFewAnswers { silent, nodes } }
    }

    fn count(&self, test: impl Fn(Node) -> bool) -> usize {
        self.nodes.iter().filter(|node| test(**node)).count()
    }

    /// This tally with the nodes in another order, for the model: `order[i]` is the node that comes to
    /// place `i`.
    #[cfg(test)]
    pub(crate) fn reordered(&self, order: &[usize]) -> Self {
        Self { nodes: order.iter().map(|&from| self.nodes[from]).collect(), token: self.token }
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
