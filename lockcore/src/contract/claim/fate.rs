//! What becomes of an acquire.

use super::Claim;

/// What becomes of an acquire whose caller has left, or whose client was closed. It is decided once: the
/// keeper must not release a lock that a guard or another task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its grant becomes a guard, or is handed on.
    Granted,
    /// The keeper releases the claim. A grant that comes later is released, too.
    GivenUp,
}

impl Claim {
    /// Decides what becomes of the acquire, unless that has been decided. Returns whether it is so.
    pub(crate) fn decide(&self, fate: Fate) -> bool {
        *self.0.fate.get_or_init(|| fate) == fate
    }
}
