//! The one error type.

use std::fmt;

use crate::LockName;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

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
    /// another limit.
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
    /// Too many requests are waiting. Nothing was sent.
    Overloaded: "overloaded",
    /// The server refused because of concurrent requests: a serialization failure, a deadlock. Nothing was
    /// done, and the same may succeed when it is tried again.
    Conflict: "conflict",
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
    /// Creating the lock's tables or nodes.
    CreateSchema,
    /// Checking a lock inside the user's own transaction.
    Verify,
}

impl Operation {
    fn describe(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Downgrade => "downgrade",
            Self::Release => "release",
            Self::Inspect => "inspect",
            Self::ForceRelease => "force-release",
            Self::CreateSchema => "create schema",
            Self::Verify => "verify",
        }
    }
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong: the [kind](ErrorKind), the operation, the lock, the backend, and the cause.
///
/// `Display` gives one line without the cause; `{:#}` gives the whole chain of causes on one line. No
/// password and no owner id is ever part of it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Report>);

#[derive(Debug, thiserror::Error)]
struct Report {
    kind: ErrorKind,
    message: String,
    operation: Option<Operation>,
    lock: Option<LockName>,
    backend: Option<&'static str>,
    retryable: bool,
    source: Option<Source>,
}

impl Error {
    /// An error of this kind. `message` says what was wrong, and what is allowed or what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::TimedOut
                | ErrorKind::Held
                | ErrorKind::Unreachable
                | ErrorKind::UnknownOutcome
                | ErrorKind::Overloaded
                | ErrorKind::Conflict
        );
        Self(Box::new(Report {
            kind,
            message: message.into(),
            operation: None,
            lock: None,
            backend: None,
            retryable,
            source: None,
        }))
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds the operation, unless it is known already.
    #[must_use]
    pub fn during(mut self, operation: Operation) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Adds the lock, unless it is known already.
    #[must_use]
    pub fn for_lock(mut self, name: &LockName) -> Self {
        self.0.lock.get_or_insert_with(|| name.clone());
        self
    }

    /// Adds the backend, unless it is known already.
    #[must_use]
    pub fn on_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without human intervention.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// The operation that failed.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// The name of the lock.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// The name of the backend.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The message alone, without the operation, the lock and the backend.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// A copy of the error, for several callers of one call that failed. The cause becomes text.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::new(self.kind(), self.message());
        copy.0.operation = self.0.operation;
        copy.0.lock.clone_from(&self.0.lock);
        copy.0.backend = self.0.backend;
        copy.0.source = self.0.source.as_ref().map(|source| source.to_string().into());
        copy
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(backend) = self.backend {
            write!(f, "{backend}: ")?;
        }
        if let Some(operation) = self.operation {
            f.write_str(operation.describe())?;
            if let Some(lock) = &self.lock {
                write!(f, " {lock:?}")?;
            }
            f.write_str(": ")?;
        } else if let Some(lock) = &self.lock {
            write!(f, "lock {lock:?}: ")?;
        }
        write!(f, "{}", self.kind.describe())?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if f.alternate() {
            let mut cause = std::error::Error::source(self);
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_where_and_what() {
        let name = LockName::new("orders/42").unwrap();
        let error = Error::new(ErrorKind::TimedOut, "still held after 5s")
            .for_lock(&name)
            .during(Operation::Acquire)
            .during(Operation::Release)
            .on_backend("postgres");
        assert_eq!(error.to_string(), "postgres: acquire \"orders/42\": timed out: still held after 5s");
        assert!(error.is_retryable());
    }

    #[test]
    fn the_chain_is_kept() {
        let error = Error::new(ErrorKind::Unreachable, "no answer")
            .with_source(std::io::Error::other("connection refused"));
        assert_eq!(error.to_string(), "unreachable: no answer");
        assert_eq!(format!("{error:#}"), "unreachable: no answer: connection refused");
        assert_eq!(format!("{:#}", error.duplicate()), format!("{error:#}"));
    }
}
