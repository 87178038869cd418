//! What can be wrong with a lock.

use std::sync::Arc;

use lockwell::backend::DistributedLock;

use super::client::OneServer;
use super::queue::Queue;
use super::votes::Votes;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A release frees the lock by its name.
    ReleaseWithoutCompare,
    /// The guard takes a token that is not lower than the highest. The lock gives one token to two.
    GuardTakesEqualTokens,
    /// Half of the clients judge leases by clocks that are ahead.
    ClientsWallClock,
    /// The lease counts from the beginning of the transaction, in which the claim has waited.
    NowOfTransaction,
    /// Whoever has the lowest suffix holds, past its overflow, too.
    OrderBySuffix,
    /// A node of an old session is taken for ours, and only our session is looked at afterwards.
    StaleSession,
    /// A renewal goes by the name of the lock.
    RenewsStolen,
    /// Validity counts from the answer.
    CountsFromAnswer,
    /// A release does not wait for the request that it is to undo.
    ReleaseOvertakes,
    /// What was granted to somebody who has gone is not given back.
    NoCleanUp,
    /// Two nodes of four are a majority.
    HalfIsMajority,
    /// Nodes that have forgotten their locks vote at once.
    VotesAfterAmnesia,
    /// What a round that failed gives back is compared with the owner, not with the round.
    OldGiveBack,
    /// The operator's request is sent three times, and frees whoever holds the lock each time.
    ForceRepeated,
    /// A waiter takes a notification for the lock.
    GrantWithoutLook,
    /// The session was granted for a shorter time than was asked for, and the validity goes by what was asked
    /// for.
    OutlivesSession,
    /// Two are granted the lock with one token, as after a failover.
    TokenTwice,
    /// No renewal arrives, though nothing is in its way.
    NotRenewed,
    /// Nothing is wrong.
    None,
    NoneByQueue,
    NoneByVotes,
}

/// By what a defect shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Overlap,
    Token,
    /// A free lock is not granted, or is held when all is quiet.
    Withheld,
    /// Somebody loses the lock whom nobody has deprived of it.
    Taken,
    /// A lease runs out though no fault was at work.
    RanOut,
    GuardedLoss,
}

/// Every defect, and the sign by which it must be caught.
pub(super) const ALL: &[(Defect, Sign)] = &[
    (Defect::ReleaseWithoutCompare, Sign::Overlap),
    (Defect::GuardTakesEqualTokens, Sign::GuardedLoss),
    (Defect::ClientsWallClock, Sign::Overlap),
    (Defect::NowOfTransaction, Sign::Overlap),
    (Defect::OrderBySuffix, Sign::Overlap),
    (Defect::StaleSession, Sign::Overlap),
    (Defect::RenewsStolen, Sign::Overlap),
    (Defect::CountsFromAnswer, Sign::Overlap),
    (Defect::ReleaseOvertakes, Sign::Withheld),
    (Defect::NoCleanUp, Sign::Withheld),
    (Defect::HalfIsMajority, Sign::Overlap),
    (Defect::VotesAfterAmnesia, Sign::Overlap),
    (Defect::OldGiveBack, Sign::Overlap),
    (Defect::ForceRepeated, Sign::Taken),
    (Defect::GrantWithoutLook, Sign::Overlap),
    (Defect::OutlivesSession, Sign::Overlap),
    (Defect::TokenTwice, Sign::Token),
    (Defect::NotRenewed, Sign::RanOut),
];

impl Defect {
    /// Whether it shows only where requests are given up.
    pub(super) fn needs_cancellation(self) -> bool {
        matches!(self, Self::ReleaseWithoutCompare | Self::ReleaseOvertakes | Self::NoCleanUp | Self::None)
    }

    /// Whether it shows only where an operator frees locks.
    pub(super) fn needs_an_operator(self) -> bool {
        matches!(self, Self::RenewsStolen | Self::ForceRepeated)
    }
}

/// A lock with this defect.
pub(super) fn lock(defect: Defect) -> Arc<dyn DistributedLock> {
    match defect {
        Defect::OrderBySuffix | Defect::NoneByQueue => Arc::new(Queue::new(defect)),
        Defect::HalfIsMajority | Defect::VotesAfterAmnesia | Defect::OldGiveBack | Defect::NoneByVotes => {
            Arc::new(Votes::new(defect))
        }
        _ => Arc::new(OneServer::new(defect)),
    }
}
