//! An error that returns something.

use std::fmt;

use crate::{Error, ErrorKind};

/// An error of an operation, with a value that would otherwise be lost.
///
/// `run` returns the value of work that was finished when the loss of the lock was noticed, and `downgrade`
/// the guard that it could not change. With `?` it becomes a plain [`Error`], and the value is dropped.
pub struct ErrorWith<T> {
    error: Error,
    left: Option<T>,
}

impl<T> ErrorWith<T> {
    pub(crate) fn new(error: Error, left: Option<T>) -> Self {
        Self { error, left }
    }

    /// What went wrong.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The value, if there is one.
    pub fn into_left(self) -> Option<T> {
        self.left
    }

    /// The error and the value.
    pub fn into_parts(self) -> (Error, Option<T>) {
        (self.error, self.left)
    }
}

impl<T> AsRef<Error> for ErrorWith<T> {
    fn as_ref(&self) -> &Error {
        &self.error
    }
}

impl<T> From<ErrorWith<T>> for Error {
    fn from(with: ErrorWith<T>) -> Self {
        with.error
    }
}

impl<T> From<Error> for ErrorWith<T> {
    fn from(error: Error) -> Self {
        Self { error, left: None }
    }
}

impl<T> fmt::Display for ErrorWith<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// As that of [`Error`]. The value need not be printable, and is not printed.
impl<T> fmt::Debug for ErrorWith<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> std::error::Error for ErrorWith<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
