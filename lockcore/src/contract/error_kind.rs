//! What went wrong, and in which operation, for programs.

/// Declares the kinds and their words, so that no list of them leaves one out.
macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident: $words:literal,)*) => {
        /// What went wrong, in a form that a program can handle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$about])* $kind,)*
        }

        impl ErrorKind {
            /// All kinds of this version. A program that decides on each kind can check by this list that it
            /// has missed none.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The kind in words.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Self::$kind => $words,)*
                }
            }
        }
    };
}

kinds! {
    /// The wait ended before the lock was free. Nothing is held.
    TimedOut: "timed out",
    /// The lock is held by another claim, and the operation does not wait.
    Held: "held by another",
    /// The lock was held and has been lost: the server reported it, or the lease ran out.
    Lost: "lost",
    /// The operation needs a lock that this claim does not hold.
    NotHeld: "not held",
    /// The name is in use as another kind of lock: as a mutex instead of a semaphore, or as a semaphore with
    /// another limit. A claim that waits gets the lock when that kind has left.
    KindClash: "clash of kinds",
    /// The claim would wait for its own owner, and so for ever. An upgrade of a reader to a writer is an
    /// example.
    WouldDeadlock: "would deadlock",
    /// A name, duration, URL or option is invalid. Nothing was sent.
    InvalidInput: "invalid input",
    /// The backend cannot do this, or its feature is not compiled in. Nothing was sent.
    Unsupported: "unsupported",
    /// The server cannot be reached, or did not answer in time.
    Unreachable: "unreachable",
    /// The server refused the authentication or a permission.
    Refused: "refused",
    /// The server answers, but locks do not work because of its state or settings: no table, wrong database,
    /// read only, full.
    Misconfigured: "misconfigured server",
    /// The request may or may not have taken effect. It is being cleaned up in the background.
    UnknownOutcome: "unknown outcome",
    /// The claim was cancelled before its request was sent. Nothing was sent.
    Cancelled: "cancelled",
    /// Too many requests are waiting, or the system has no thread left. Nothing was sent.
    Overloaded: "overloaded",
    /// The server refused because of concurrent requests: a serialization failure, a deadlock. Nothing was
    /// done, and the same may succeed when it is tried again.
    Conflict: "conflict",
    /// The server may have forgotten grants, and grants nothing until their leases have ended. The message
    /// says for how long. A claim that waits long enough waits for that as well.
    GracePeriod: "grace period",
    /// The client was closed.
    Closed: "closed",
    /// A defect in lockwell or in a backend.
    Internal: "internal error",
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Connecting to the server and checking it.
    Connect,
    /// Claiming a lock.
    Acquire,
    /// Holding a lock, while work is done under it.
    Hold,
    /// Extending leases.
    Renew,
    /// Turning a writer into a reader.
    Downgrade,
    /// Releasing a claim.
    Release,
    /// Reading the status of a lock.
    Inspect,
    /// Releasing a lock from all its holders.
    ForceRelease,
    /// Writing the record of a lock.
    WriteRecord,
    /// Reading the record of a lock.
    ReadRecord,
    /// Beginning a grace period by hand.
    BeginGrace,
    /// Creating the lock's tables or nodes.
    CreateSchema,
    /// Checking a lock inside the user's own transaction.
    Verify,
}

impl Operation {
    /// The operation in words.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Hold => "hold",
            Self::Renew => "renew",
            Self::Downgrade => "downgrade",
            Self::Release => "release",
            Self::Inspect => "inspect",
            Self::ForceRelease => "force-release",
            Self::WriteRecord => "write a record",
            Self::ReadRecord => "read a record",
            Self::BeginGrace => "begin a grace period",
            Self::CreateSchema => "create schema",
            Self::Verify => "verify",
        }
    }
}
