//! What can go wrong in a comparison.

/// The outcome of a part of the comparison.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a part of the comparison failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A lock was held by two at once, or a token did not rise. Nothing that was measured counts after that.
    #[error("{0}")]
    Violation(String),
    /// Anything else. The other backends and workloads go on.
    #[error("{0}")]
    Failed(String),
    /// The lock refused or failed.
    #[error("{0:#}")]
    Lock(#[from] lockwell::Error),
    /// The raw statements failed.
    #[error("the raw statements: {0}")]
    Raw(#[from] sqlx::Error),
    /// The raw commands failed.
    #[error("the raw commands: {0}")]
    RawRedis(#[from] redis::RedisError),
    /// The raw operations failed.
    #[error("the raw operations: {0}")]
    RawZooKeeper(#[from] zookeeper_client::Error),
    /// The runs with faults failed.
    #[error("{0}")]
    Faults(#[from] faults::Error),
    /// A file or a worker process.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The results cannot be kept. There is no sense in going on.
    #[error("{0}")]
    File(String),
    /// A part of the comparison panicked.
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}

impl Error {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}
