//! Answers to a login that sqlx drops, code and all, since their text is not UTF-8: before a login, a server
//! writes in the encoding of its own locale.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use sqlx_core::error::{DatabaseError, ErrorKind};

/// Options by which a server can be asked once more, for the code of an answer that was dropped.
pub(crate) trait Reread {
    /// `None`: there is no answer now.
    fn reread(&self) -> impl Future<Output = Option<Unread>> + Send;
}

/// An answer of which only the code was read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The SQLSTATE.
    pub(crate) code: String,
    /// The number that MySQL and MariaDB have instead, or 0.
    pub(crate) number: u16,
}

/// Whether sqlx has dropped an answer.
pub(super) fn is_dropped(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Protocol(text) if text.contains("UTF-8") || text.contains("utf-8"))
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "SQLSTATE {}", self.code)?,
            number => write!(f, "error {number}")?,
        }
        f.write_str("; its text is not UTF-8: lc_messages=C at the server gives one that is")
    }
}

impl Error for Unread {}

impl DatabaseError for Unread {
    fn message(&self) -> &str {
        &self.code
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(&self.code))
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}
