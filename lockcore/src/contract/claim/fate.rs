//! What becomes of an acquire.

/// What becomes of an acquire whose caller has left, or whose client was closed. It is decided once: the
/// keeper must not release a lock that a guard or another task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its grant becomes a guard, or is handed on.
    Granted,
    /// The keeper releases the claim. A grant that comes later is released, too.
    GivenUp,
}
