//! What the model is about: nodes, claims, letters under way, and the resource that the lock protects.

use crate::tally::{Tally, VoteAnswer};

/// A set of small numbers: claims or nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Set(u8);

impl Set {
    pub(crate) fn has(self, member: usize) -> bool {
        self.0 & (1 << member) != 0
    }

    pub(crate) fn add(&mut self, member: usize) {
        self.0 |= 1 << member;
    }

    pub(crate) fn remove(&mut self, member: usize) {
        self.0 &= !(1 << member);
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn members(self) -> impl Iterator<Item = usize> {
        (0..8).filter(move |&member| self.has(member))
    }

    pub(crate) fn subsets(self) -> impl Iterator<Item = Self> {
        (0..=self.0).filter(move |it| it & self.0 == *it).map(Self)
    }

    /// The same set after its members were put in another order: `order[i]` comes to place `i`.
    pub(crate) fn reordered(self, order: &[usize]) -> Self {
        let mut set = Self::default();
        for (place, &from) in order.iter().enumerate() {
            if self.has(from) {
                set.add(place);
            }
        }
        set
    }
}

/// A claim that a node's lock is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Holder {
    pub(crate) claim: usize,
    /// What the claim raised the counter to.
    pub(crate) number: u64,
    pub(crate) reads: bool,
    /// The round that it belongs to.
    pub(crate) round: u8,
    /// The renewal that its lease is from; 0 for the vote itself.
    pub(crate) lease: u8,
}

/// One Redis server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    /// Several only if all of them are readers. Sorted.
    pub(crate) holders: Vec<Holder>,
    pub(crate) counter: u64,
    /// The claims that this node voted for since it last lost its memory, as far as they are not over.
    pub(crate) voted: Set,
    pub(crate) memory: Memory,
}

impl Node {
    pub(crate) fn holder(&self, claim: usize) -> Option<&Holder> {
        self.holders.iter().find(|it| it.claim == claim)
    }

    pub(crate) fn holds(&self, claim: usize) -> bool {
        self.holder(claim).is_some()
    }

    pub(crate) fn free(&mut self, claim: usize) {
        self.holders.retain(|it| it.claim != claim);
    }

    /// Sets the lock to a claim, beside others or instead of what was set for it before.
    pub(crate) fn set(&mut self, holder: Holder) {
        self.free(holder.claim);
        self.holders.push(holder);
        self.holders.sort_unstable();
    }
}

/// Whether a node may vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Memory {
    #[default]
    Whole,
    /// It has lost lock and counter, and does not vote yet. These claims had its vote and are not over.
    Lost { waits_for: Set },
}

impl Memory {
    pub(crate) fn is_whole(self) -> bool {
        self == Self::Whole
    }
}

/// Somebody who restores the counter of a node that has lost its memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Repair {
    pub(crate) node: usize,
    /// The nodes whose counters it has read, and the highest of them.
    pub(crate) read: Set,
    pub(crate) highest: u64,
    /// The node has lost its memory once more since this repair began.
    pub(crate) outdated: bool,
}

/// The answers to phase 2.
pub(crate) const REFUSED: usize = 0;
pub(crate) const INSTALLED: usize = 1;

/// What is under way between a claim and a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line {
    /// The request of phase 1.
    pub(crate) ask: bool,
    /// Its answers: more than one when the request was duplicated. Sorted.
    pub(crate) answers: Vec<VoteAnswer>,
    /// The claim has taken an answer; it takes no other.
    pub(crate) received: bool,
    /// The request of phase 2, with the token.
    pub(crate) raise: Option<u64>,
    /// Its answers: `REFUSED` or `INSTALLED`, or both if the request was duplicated.
    pub(crate) replies: Set,
    pub(crate) late: Late,
    /// The number of the renewal whose request is under way.
    pub(crate) renew: Option<u8>,
    /// The number of the renewal after which a lock that the node had lost is set again. That request is
    /// under way.
    pub(crate) reinstate: Option<u8>,
}

/// Requests of an earlier round that are still under way: those of both phases, and what gives its vote back.
/// Nobody waits for their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Late {
    /// The rounds whose request for a vote is under way.
    pub(crate) ask: Set,
    /// A token, and the round that wants to install it.
    pub(crate) raise: Option<(u8, u64)>,
    /// The rounds whose votes are being given back. That is repeated, so it can come any number of times.
    pub(crate) back: Set,
}

/// One claim of one client. It may try in several rounds, with the same owner id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Claim {
    pub(crate) phase: Phase,
    /// Whether it is a reader.
    pub(crate) reads: bool,
    /// How many tokens it wants: its token is the last of them.
    pub(crate) block: u64,
    pub(crate) round: u8,
    /// The nodes that its downgrade is on the way to.
    pub(crate) turns: Set,
    pub(crate) floor: u64,
    /// The claims that had been granted when this one, or its latest round, began.
    pub(crate) after: Set,
    /// The resource has accepted a write of this claim.
    pub(crate) wrote: bool,
    /// How many renewals a majority has confirmed: until the leases from the last of them end, the claim is
    /// valid.
    pub(crate) renewed: u8,
    /// The nodes that have confirmed the one under way, and those that said that they have lost the lock.
    pub(crate) extended: Set,
    pub(crate) bare: Set,
    /// An operator has named it to be freed.
    pub(crate) forced: bool,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    /// With the token, once it was fixed and phase 2 was needed.
    Asking(Tally, Option<u64>),
    /// It considers itself the holder.
    Granted(u64),
    /// It was a writer, and is no holder until these nodes, and enough others, have made it a reader.
    Turning(u64, Set),
    /// It was granted, and its validity has ended: released, or its time was over. It may still write.
    Ended(u64),
    /// It was not granted and never will be.
    Failed,
}

impl Phase {
    /// Whether something may still come of it, or be held.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Asking(..) | Self::Granted(_) | Self::Turning(..))
    }
}

impl Claim {
    /// The token, if it was granted.
    pub(crate) fn token(&self) -> Option<u64> {
        match self.phase {
            Phase::Granted(token) | Phase::Turning(token, _) | Phase::Ended(token) => Some(token),
            _ => None,
        }
    }

    /// What the tokens of this claim are above of, if it was granted.
    pub(crate) fn base(&self) -> Option<u64> {
        self.token().map(|token| token.saturating_sub(self.block))
    }

    pub(crate) fn is_valid(&self) -> bool {
        matches!(self.phase, Phase::Granted(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ended(_) | Phase::Failed)
    }
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) repairs: Vec<Repair>,
    /// The highest token that the resource has accepted, and its owner.
    pub(crate) resource: Option<(u64, usize)>,
    /// How many requests may still be duplicated, counters raised by others, rounds begun anew, and memories
    /// lost.
    pub(crate) duplicates: u8,
    pub(crate) strangers: u8,
    pub(crate) rounds: u8,
    pub(crate) losses: u8,
    pub(crate) renewals: u8,
    pub(crate) forces: u8,
    /// How many times all nodes may still lose all they have.
    pub(crate) restarts: u8,
    /// An operator's request without a name, under way: it frees whoever holds the lock when it comes.
    pub(crate) sweeps: Set,
}

impl State {
    /// The rule at the resource (`lockwell_core::FencingToken`): higher, or equal and from the recorded
    /// owner.
    pub(crate) fn accepts(&self, claim: usize) -> bool {
        let Some(token) = self.claims[claim].token() else { return false };
        self.resource.is_none_or(|(highest, owner)| token > highest || token == highest && owner == claim)
    }

    /// The claims that were granted so far.
    pub(crate) fn granted(&self) -> Set {
        let mut set = Set::default();
        for (index, claim) in self.claims.iter().enumerate() {
            if claim.token().is_some() {
                set.add(index);
            }
        }
        set
    }

    /// Drops what can make no difference any more, so that equal futures are equal states.
    pub(crate) fn tidy(&mut self) {
        for (index, claim) in self.claims.iter_mut().enumerate() {
            let (asking, over) = (matches!(claim.phase, Phase::Asking(..)), claim.is_over());
            for line in &mut claim.lines {
                if !asking {
                    (line.received, line.replies) = (true, Set::default());
                }
                if line.received {
                    line.answers.clear();
                }
                // Of a claim that is over, everything may go at any moment.
                if over {
                    line.late.back = Set::default();
                    line.renew = None;
                }
            }
            if over {
                (claim.turns, claim.extended, claim.bare) = Default::default();
                for node in &mut self.nodes {
                    node.voted.remove(index);
                    if let Memory::Lost { waits_for } = &mut node.memory {
                        waits_for.remove(index);
                    }
                }
            }
        }
        self.repairs.sort();
    }
}
