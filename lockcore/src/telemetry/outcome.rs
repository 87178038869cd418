//! What became of an acquire, and of a renewal.

/// What became of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Granted,
    /// Held by another, and the request did not wait.
    Held,
    TimedOut,
    /// Its caller has gone.
    Cancelled,
    Failed,
}

impl AcquireOutcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum RenewalOutcome {
    Extended,
    Lost,
    Unknown,
}
