//! For programs without async: the same locks, by calls that wait.
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
//! Requests run on a thread of lockwell with a runtime of its own, `lockwell-blocking`, which is shared by all clients of the
//! process; the calls wait on the thread that makes them. Within an async runtime they are refused by an error of kind
//! [`Unsupported`](crate::ErrorKind::Unsupported): there [`crate::Locks`] is the right face.

pub use lockcore::blocking::{LockAllGuard, LockGuard, LockRequest, Locks};

use crate::{LockConfig, Result};

/// Connects to the lock server at this address. See [`crate::connect`].
///
/// It is refused within an async runtime.
pub fn connect(url: impl Into<String>) -> Result<Locks> {
    Locks::connect_by(crate::connect(url))
}

/// Connects as a configuration says. See [`crate::connect_with`].
///
/// It is refused within an async runtime.
pub fn connect_with(config: LockConfig) -> Result<Locks> {
    Locks::connect_by(crate::connect_with(config))
}
