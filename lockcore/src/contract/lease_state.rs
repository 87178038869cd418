//! The state of a held lock, and the reasons of a loss.

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out before it could be renewed. Another may hold the lock now.
    Expired,
    /// The server says that the claim no longer holds the lock.
    Taken,
    /// The lock was held for the longest time that its request allows, and was released.
    HeldTooLong,
    /// The application has not reported progress for as long as its request allows. The lock has been
    /// released.
    NoProgress,
}

/// The state of a lease, as its holder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lock is held.
    Held,
    /// The lock is held until the deadline, but the last renewal is overdue or failed. Pause the work if
    /// possible.
    Suspect,
    /// The lock is lost. Stop the work.
    Lost(Loss),
    /// The lock was released.
    Released,
}

impl LeaseState {
    /// Whether the lock is held, in doubt or not.
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }
}
