//! What can go wrong in a run.

/// The outcome of a part of a run.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a part of a run failed. It says nothing about the locks, unless it is about the end of a worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Anything that is none of the others.
    #[error("{0}")]
    Failed(String),
    /// A lock refused or failed where it must not.
    #[error("{0:#}")]
    Lock(#[from] lockwell::Error),
    /// A statement of a fault failed.
    #[error("a statement: {0}")]
    Sql(#[from] sqlx::Error),
    /// A file or a worker process.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The results cannot be kept. There is no sense in going on.
    #[error("{0}")]
    File(String),
    /// A part of a run panicked.
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl Error {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}
