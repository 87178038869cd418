//! What can happen.

use std::fmt;

use crate::state::Set;
use crate::tally::Answer;

/// One event. A message that is lost is one whose event never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Begin {
        claim: usize,
        floor: u64,
    },
    /// Phase 1 reaches a node. `again`: the request will come once more.
    Ask {
        claim: usize,
        node: usize,
        again: bool,
    },
    /// The answer reaches the claim.
    Hear {
        claim: usize,
        node: usize,
        answer: Answer,
    },
    /// The answers of these nodes reach the claim, in the lean world.
    HearVotes {
        claim: usize,
        nodes: Set,
    },
    HearInstalls {
        claim: usize,
    },
    /// Phase 2 reaches a node.
    Raise {
        claim: usize,
        node: usize,
        again: bool,
    },
    HearRaise {
        claim: usize,
        node: usize,
        ok: bool,
    },
    /// The lock at a node is gone: released, or its lease ran out.
    Expire {
        node: usize,
    },
    /// The claim is over: released, or its time has run out.
    End {
        claim: usize,
    },
    /// The claim extends its leases at a majority.
    Extend {
        claim: usize,
    },
    Write {
        claim: usize,
    },
    Forget {
        node: usize,
    },
    /// A node that forgot has waited long enough and votes again, without a repair.
    Return {
        node: usize,
    },
    BeginRepair {
        node: usize,
    },
    Read {
        repair: usize,
        node: usize,
    },
    EndRepair {
        repair: usize,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |claim: usize| ["A", "B", "C", "D"][claim];
        match *self {
            Self::Begin { claim, floor } => write!(f, "{} begins with the floor {floor}", name(claim)),
            Self::Ask { claim, node, again } => {
                write!(f, "node {} takes phase 1 of {}{}", node + 1, name(claim), twice(again))
            }
            Self::Hear { claim, node, answer } => {
                write!(f, "{} hears {answer:?} from node {}", name(claim), node + 1)
            }
            Self::HearVotes { claim, nodes } => write!(f, "{} hears the votes of {nodes:?}", name(claim)),
            Self::HearInstalls { claim } => write!(f, "{} hears that it is installed", name(claim)),
            Self::Raise { claim, node, again } => {
                write!(f, "node {} takes phase 2 of {}{}", node + 1, name(claim), twice(again))
            }
            Self::HearRaise { claim, node, ok } => {
                let answer = if ok { "installed" } else { "refused" };
                write!(f, "{} hears \"{answer}\" from node {}", name(claim), node + 1)
            }
            Self::Expire { node } => write!(f, "the lock at node {} is gone", node + 1),
            Self::End { claim } => write!(f, "{} is over", name(claim)),
            Self::Extend { claim } => write!(f, "{} extends its leases", name(claim)),
            Self::Write { claim } => write!(f, "{} writes", name(claim)),
            Self::Forget { node } => write!(f, "node {} loses its memory", node + 1),
            Self::Return { node } => write!(f, "node {} votes again", node + 1),
            Self::BeginRepair { node } => write!(f, "a repair of node {} begins", node + 1),
            Self::Read { repair, node } => {
                write!(f, "repair {} reads the counter of node {}", repair + 1, node + 1)
            }
            Self::EndRepair { repair } => write!(f, "repair {} raises the counter", repair + 1),
        }
    }
}

fn twice(again: bool) -> &'static str {
    if again { ", which will come once more" } else { "" }
}
