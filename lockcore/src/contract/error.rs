//! The one error type.

use std::fmt;
use std::sync::Arc;

use crate::{ErrorKind, LockName, Moment, Operation};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong: the [kind](ErrorKind), the operation, the lock, the backend with its servers, and the
/// cause.
///
/// `Display` gives one line without the cause; `{:#}` gives the whole chain of causes on one line. `Debug`
/// gives the line, and each cause on a line of its own, for `unwrap` and for `main`, which print errors in
/// that form; `{:#?}` gives the fields. No password and no owner id is ever part of it.
///
/// ```
/// # use lockwell_core as lockwell;
/// use lockwell::{Error, ErrorKind, Operation};
///
/// let error = Error::new(ErrorKind::Unreachable, "the database does not answer")
///     .during(Operation::Connect)
///     .on_backend("postgres")
///     .at("db.example:5432")
///     .with_source("connection refused");
/// assert_eq!(
///     format!("{error:?}"),
///     "postgres at db.example:5432: connect: unreachable: the database does not answer\n\
///      \n\
///      Caused by:\n    connection refused",
/// );
/// ```
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Report>);

#[derive(Debug, thiserror::Error)]
struct Report {
    kind: ErrorKind,
    message: String,
    operation: Option<Operation>,
    lock: Option<LockName>,
    backend: Option<&'static str>,
    servers: Option<Arc<str>>,
    retryable: bool,
    is_silence: bool,
    away_since: Option<Moment>,
    source: Option<Source>,
}

impl Error {
    /// An error of this kind. `message` says what was wrong, and what is allowed or what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::TimedOut
                | ErrorKind::Held
                | ErrorKind::KindClash
                | ErrorKind::Unreachable
                | ErrorKind::UnknownOutcome
                | ErrorKind::Overloaded
                | ErrorKind::Conflict
                | ErrorKind::GracePeriod
        );
        Self(Box::new(Report {
            kind,
            message: message.into(),
            operation: None,
            lock: None,
            backend: None,
            servers: None,
            retryable,
            is_silence: false,
            away_since: None,
            source: None,
        }))
    }

    /// For backends: the error of a request without an answer, of which nothing more is known.
    pub fn silence() -> Self {
        let mut error = Self::new(ErrorKind::Unreachable, "the server cannot be reached or does not answer");
        error.0.is_silence = true;
        error
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

    /// Adds the servers that were asked, unless they are known already: `HOST:PORT`, several with commas
    /// between, or the path of a socket. See [`ServerUrl::servers`](crate::ServerUrl::servers).
    ///
    /// `Display` names them where the server was not reached, has refused the client or is misconfigured.
    #[must_use]
    pub fn at(mut self, servers: impl Into<Arc<str>>) -> Self {
        self.0.servers.get_or_insert_with(|| servers.into());
        self
    }

    /// Adds something to the message, after a semicolon: what was found out about the failure, or what can
    /// be done about it.
    #[must_use]
    pub fn adding(mut self, more: impl fmt::Display) -> Self {
        let message = &mut self.0.message;
        *message = if message.is_empty() { more.to_string() } else { format!("{message}; {more}") };
        self
    }

    /// Marks the error as one that does not pass without human intervention, whatever its kind is.
    #[must_use]
    pub fn for_good(mut self) -> Self {
        self.0.retryable = false;
        self
    }

    /// Marks the error as one that only this claim cannot survive: another one of the same request goes on, at a
    /// server that has been away since then.
    pub(crate) fn of_ended_claim(mut self, away_since: Moment) -> Self {
        self.0.away_since = Some(away_since);
        self
    }

    /// Since when the server has been away, if another claim goes on.
    pub(crate) fn away_since(&self) -> Option<Moment> {
        self.0.away_since
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without human intervention.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// For backends: whether it is [silence](Self::silence).
    pub fn is_silence(&self) -> bool {
        self.0.is_silence
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

    /// The servers that were asked: `HOST:PORT`, several with commas between, or the path of a socket.
    pub fn servers(&self) -> Option<&str> {
        self.0.servers.as_deref()
    }

    /// The message alone, without the operation, the lock and the backend.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// A copy of the error, for several callers of one call that failed. The causes become one text.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let causes: Vec<_> = self.0.causes().map(ToString::to_string).collect();
        Self(Box::new(Report {
            kind: self.0.kind,
            message: self.0.message.clone(),
            operation: self.0.operation,
            lock: self.0.lock.clone(),
            backend: self.0.backend,
            servers: self.0.servers.clone(),
            retryable: self.0.retryable,
            is_silence: self.0.is_silence,
            // The claims of others go on.
            away_since: None,
            source: (!causes.is_empty()).then(|| causes.join(": ").into()),
        }))
    }
}

impl Report {
    fn causes(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        std::iter::successors(std::error::Error::source(self), |cause| cause.source())
    }

    /// The servers, for the kinds of errors that an operator looks for there.
    fn blamed_servers(&self) -> Option<&str> {
        let about_servers = matches!(
            self.kind,
            ErrorKind::Unreachable
                | ErrorKind::UnknownOutcome
                | ErrorKind::Refused
                | ErrorKind::Misconfigured
        );
        self.servers.as_deref().filter(|_| about_servers)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.backend, self.blamed_servers()) {
            (Some(backend), Some(servers)) => write!(f, "{backend} at {servers}: ")?,
            (Some(one), None) | (None, Some(one)) => write!(f, "{one}: ")?,
            (None, None) => (),
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
            for cause in self.causes() {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return fmt::Debug::fmt(&self.0, f);
        }
        write!(f, "{self}")?;
        let several = self.0.causes().nth(1).is_some();
        for (number, cause) in self.0.causes().enumerate() {
            if number == 0 {
                f.write_str("\n\nCaused by:")?;
            }
            let number = if several { format!("{number}: ") } else { String::new() };
            let text = cause.to_string().replace('\n', "\n       ");
            write!(f, "\n    {number}{text}")?;
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
            .on_backend("postgres")
            .at("db:5432");
        assert_eq!(error.to_string(), "postgres: acquire \"orders/42\": timed out: still held after 5s");
        assert_eq!(error.servers(), Some("db:5432"));
        assert!(error.is_retryable() && !error.for_good().is_retryable());
    }

    #[test]
    fn the_servers_are_named_where_one_looks_for_the_fault_there() {
        for &kind in ErrorKind::ALL {
            let text = Error::new(kind, "").at("a:1,b:2").at("c:3").on_backend("redis").to_string();
            let named = text.starts_with("redis at a:1,b:2: ");
            assert_eq!(named, text.contains("a:1"), "{text}");
            assert_eq!(
                named,
                [
                    ErrorKind::Unreachable,
                    ErrorKind::UnknownOutcome,
                    ErrorKind::Refused,
                    ErrorKind::Misconfigured
                ]
                .contains(&kind),
                "{text}"
            );
        }
        assert_eq!(Error::new(ErrorKind::Refused, "").at("a:1").to_string(), "a:1: refused");
    }

    #[test]
    fn the_chain_is_kept() {
        let error = Error::new(ErrorKind::Unreachable, "no answer")
            .with_source(Error::new(ErrorKind::Refused, "at first").with_source("connection refused"))
            .for_good();
        assert_eq!(error.to_string(), "unreachable: no answer");
        assert_eq!(format!("{error:#}"), "unreachable: no answer: refused: at first: connection refused");
        let copy = error.duplicate();
        assert_eq!(format!("{copy:#}"), format!("{error:#}"));
        assert_eq!(copy.is_retryable(), error.is_retryable());
    }

    #[test]
    fn debug_is_for_people_who_unwrap() {
        let error = Error::new(ErrorKind::Unreachable, "no answer").adding("is it running?");
        assert_eq!(format!("{error:?}"), "unreachable: no answer; is it running?");
        let error = error.with_source(Error::new(ErrorKind::Internal, "two\nlines").with_source("refused"));
        assert_eq!(
            format!("{error:?}"),
            "unreachable: no answer; is it running?\n\nCaused by:\n    0: internal error: two\n       lines\n    1: refused"
        );
        assert!(format!("{error:#?}").contains("kind: Unreachable"), "{error:#?}");
        let with = crate::ErrorWith::new(Error::new(ErrorKind::Lost, "gone"), Some(7));
        assert_eq!(format!("{with:?}"), "lost: gone");
    }
}
