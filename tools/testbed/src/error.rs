//! What can go wrong with a throwaway server.

use std::{fmt, io};

/// Why a server could not be started, stopped or asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A program that is needed is not on this machine. The text says which, and how to get it.
    NotInstalled(String),
    /// The release of a server is too old for this. The text says for what.
    TooOld(String),
    /// The operating system refused something. The text says what.
    Io(String, io::Error),
    /// The server did not come up. Holds the tail of what it wrote to its log.
    Startup {
        /// The kind of server.
        server: &'static str,
        /// What was waited for, and what happened instead.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    /// A client program (`psql`, `mariadb`) failed. The text holds what it wrote to its standard error.
    Client(String),
    /// The server is not in the state that the call needs: it is not running, or it does not end.
    State(String),
}

impl Error {
    /// True if the only thing wrong is that a program is not installed.
    pub fn is_not_installed(&self) -> bool {
        matches!(self, Self::NotInstalled(_))
    }

    /// True if a server did not come up because somebody else listens on its port.
    pub(crate) fn port_taken(&self) -> bool {
        match self {
            Self::Startup { log, .. } => log.to_lowercase().contains("address already in use"),
            Self::Io(_, source) => source.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io(what, source)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io("the operating system".into(), error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled(text) | Self::TooOld(text) | Self::Client(text) | Self::State(text) => {
                f.write_str(text)
            }
            Self::Io(what, source) => write!(f, "{what}: {source}"),
            Self::Startup { server, why, log } => {
                write!(f, "{server} did not start: {why}; the end of its log:\n{log}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, source) => Some(source),
            _ => None,
        }
    }
}
