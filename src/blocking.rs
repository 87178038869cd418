//! The same locks for programs without async, with blocking calls.
//!
//! ```
//! # fn main() -> lockwell::Result<()> {
//! let locks = lockwell::blocking::connect("memory://")?;
//! let guard = locks.lock("backup").acquire()?;
//! guard.check()?; // between the steps of long work
//! guard.release()?;
//! locks.close()
//! # }
//! ```
//!
//! Requests run on the thread `lockwell-blocking`, which has its own runtime and is shared by all clients of the
//! process. Each call blocks its own thread until there is an answer. Within an async runtime calls fail with an error
//! of kind [`Unsupported`](crate::ErrorKind::Unsupported): use [`crate::Locks`] there.

pub use lockcore::blocking::{LockAllGuard, LockGuard, LockRequest, Locks};

use crate::{LockConfig, Result};

/// Connects to the lock server at this address. See [`crate::connect`].
///
/// Fails within an async runtime.
pub fn connect(url: impl Into<String>) -> Result<Locks> {
    Locks::connect_by(crate::connect(url))
}

/// A client that connects with its first request. See [`crate::connect_lazy`].
///
/// Fails within an async runtime.
pub fn connect_lazy(url: impl Into<String>) -> Result<Locks> {
    Locks::connect_by(std::future::ready(crate::connect_lazy(url)))
}

/// Connects with a configuration. See [`crate::connect_with`].
///
/// Fails within an async runtime.
pub fn connect_with(config: LockConfig) -> Result<Locks> {
    Locks::connect_by(crate::connect_with(config))
}
