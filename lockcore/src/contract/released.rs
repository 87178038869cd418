//! The answer to a release.

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The claim held the lock, or a place in its queue, and it was released, now or in an earlier call whose
    /// answer was lost.
    Released,
    /// The claim holds nothing. It is unknown whether an earlier call with a lost answer released it, or
    /// whether the lock was lost before. If the lock was held when the release began, it counts as released.
    InDoubt,
    /// The claim held nothing.
    NotHeld,
}

impl Released {
    /// The answer of a server that has released something of the claim, or has found nothing. `in_doubt`: an
    /// earlier copy of the request, whose answer was lost, may have released it.
    pub fn from_answer(released: bool, in_doubt: bool) -> Self {
        match (released, in_doubt) {
            (true, _) => Self::Released,
            (false, true) => Self::InDoubt,
            (false, false) => Self::NotHeld,
        }
    }
}
