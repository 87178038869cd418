//! What can happen.

use crate::state::{Repair, Set, State};
use crate::tally::VoteAnswer;

/// A request of an earlier round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tardy {
    /// Phase 1.
    Ask(u8),
    /// Phase 2.
    Raise,
    /// The release of its vote.
    Back(u8),
}

/// One event. A message that is lost is one whose event never comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Begin {
        claim: usize,
        floor: u64,
        reads: bool,
        block: u64,
    },
    /// Phase 1 reaches a node. `again`: the request will come once more.
    Ask {
        claim: usize,
        node: usize,
        again: bool,
    },
    /// The answer reaches the claim.
    Receive {
        claim: usize,
        node: usize,
        answer: VoteAnswer,
    },
    /// The answers of these nodes reach the claim, in the lean world.
    ReceiveVotes {
        claim: usize,
        nodes: Set,
    },
    ReceiveInstalls {
        claim: usize,
    },
    /// Phase 2 reaches a node.
    Raise {
        claim: usize,
        node: usize,
        again: bool,
    },
    ReceiveRaise {
        claim: usize,
        node: usize,
        ok: bool,
    },
    /// The claim ends its round and begins another.
    Again {
        claim: usize,
    },
    /// A request of an earlier round reaches a node.
    Late {
        claim: usize,
        node: usize,
        late: Tardy,
    },
    /// What a claim has at a node is gone: released, or its lease ran out.
    Expire {
        node: usize,
        claim: usize,
    },
    /// A writer that was granted wants to be a reader.
    StepDown {
        claim: usize,
    },
    /// That reaches a node.
    Turn {
        claim: usize,
        node: usize,
    },
    /// A majority has answered.
    ReceiveTurns {
        claim: usize,
    },
    /// The claim is over: released, or its time has run out.
    End {
        claim: usize,
    },
    /// A renewal is sent to all nodes.
    BeginRenewal {
        claim: usize,
    },
    /// It reaches a node.
    Renew {
        claim: usize,
        node: usize,
    },
    /// A majority has confirmed it. The nodes that said that they have lost the lock are to get it again.
    ReceiveRenewal {
        claim: usize,
    },
    /// That reaches a node.
    Reinstate {
        claim: usize,
        node: usize,
    },
    /// An operator frees the lock of this claim by force.
    Force {
        claim: usize,
    },
    /// A request without the owner's name reaches a node.
    Sweep {
        node: usize,
    },
    /// The claim extends its leases at a majority.
    Extend {
        claim: usize,
    },
    /// A claim for another name raises the counter of a node.
    Stranger {
        node: usize,
    },
    Write {
        claim: usize,
    },
    Forget {
        node: usize,
    },
    /// All nodes lose all they have, and with them ends what was under way.
    Restart,
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

impl Action {
    /// The event in words, with the names that claims and nodes had at the start: `claims[i]` is the name of
    /// claim `i`.
    pub(crate) fn describe(self, before: &State, claims: &[usize], nodes: &[usize]) -> String {
        let name = |claim: usize| ["A", "B", "C", "D"][claims[claim]];
        let number = |node: usize| nodes[node] + 1;
        let twice = |again: bool| if again { ", which will come once more" } else { "" };
        let repair = |index: usize| {
            let repair: &Repair = &before.repairs[index];
            let since = if repair.outdated { ", begun before it lost its memory again," } else { "" };
            format!("the repair of node {}{since}", number(repair.node))
        };
        match self {
            Self::Begin { claim, floor, reads, block } => {
                let who = if reads { "a reader, " } else { "" };
                format!("{} begins, {who}with the floor {floor}, for {block}", name(claim))
            }
            Self::Ask { claim, node, again } => {
                format!("node {} takes phase 1 of {}{}", number(node), name(claim), twice(again))
            }
            Self::Receive { claim, node, answer } => {
                format!("{} receives {answer:?} from node {}", name(claim), number(node))
            }
            Self::ReceiveVotes { claim, nodes } => {
                let mut nodes: Vec<usize> = nodes.members().map(number).collect();
                nodes.sort_unstable();
                format!("{} receives the votes of the nodes {nodes:?}", name(claim))
            }
            Self::Raise { claim, node, again } => {
                format!("node {} takes phase 2 of {}{}", number(node), name(claim), twice(again))
            }
            Self::ReceiveRaise { claim, node, ok } => {
                let answer = if ok { "installed" } else { "refused" };
                format!("{} receives \"{answer}\" from node {}", name(claim), number(node))
            }
            Self::ReceiveInstalls { claim } => format!("{} learns that its token is installed", name(claim)),
            Self::Again { claim } => format!("{} tries again", name(claim)),
            Self::Late { claim, node, late } => {
                let what = match late {
                    Tardy::Ask(_) => "takes an earlier round's phase 1 of",
                    Tardy::Raise => "takes an earlier round's phase 2 of",
                    Tardy::Back(_) => "takes back an earlier round's vote for",
                };
                format!("node {} {what} {}", number(node), name(claim))
            }
            Self::BeginRenewal { claim } => format!("{} renews", name(claim)),
            Self::Renew { claim, node } => {
                format!("node {} takes the renewal of {}", number(node), name(claim))
            }
            Self::ReceiveRenewal { claim } => format!("{} learns that it is renewed", name(claim)),
            Self::Reinstate { claim, node } => {
                format!("node {} takes the lock of {} that it had lost", number(node), name(claim))
            }
            Self::Force { claim } => format!("an operator frees the lock of {} by force", name(claim)),
            Self::Sweep { node } => format!("node {} takes the request of the operator", number(node)),
            Self::Expire { node, claim } => {
                format!("the lock of {} at node {} is gone", name(claim), number(node))
            }
            Self::StepDown { claim } => format!("{} wants to be a reader", name(claim)),
            Self::Turn { claim, node } => {
                format!("{} becomes a reader at node {}", name(claim), number(node))
            }
            Self::ReceiveTurns { claim } => format!("{} learns that it is a reader", name(claim)),
            Self::End { claim } => format!("{} is over", name(claim)),
            Self::Extend { claim } => format!("{} extends its leases", name(claim)),
            Self::Stranger { node } => format!("a claim for another name raises node {}", number(node)),
            Self::Write { claim } => format!("{} writes", name(claim)),
            Self::Restart => "all nodes lose their memory".to_owned(),
            Self::Forget { node } => format!("node {} loses its memory", number(node)),
            Self::Return { node } => format!("node {} votes again", number(node)),
            Self::BeginRepair { node } => format!("a repair of node {} begins", number(node)),
            Self::Read { repair: index, node } => format!("{} reads node {}", repair(index), number(node)),
            Self::EndRepair { repair: index } => format!("{} raises the counter", repair(index)),
        }
    }
}
