//! What came of one fault.

use crate::target::broken::Bound;

/// The outcome of a fault.
pub(super) struct FaultOutcome {
    pub(super) fault: String,
    /// Which server it was, and what became of it.
    pub(super) role: String,
    pub(super) bound: Option<Bound>,
    /// In nanoseconds, each time.
    pub(super) times: Vec<u64>,
    pub(super) known_lost: Vec<u64>,
}
