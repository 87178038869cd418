//! Locks for programs without async: [`block_on`] waits for a request on the calling thread.
//!
//! ```
//! use lockwell::blocking::{self, block_on};
//!
//! # fn main() -> lockwell::Result<()> {
//! let locks = block_on(lockwell::connect("memory://"))?;
//! let guard = block_on(locks.lock("backup"))?;
//! guard.check()?; // between the steps of long work: an error once the lock is lost
//! block_on(guard.release())?; // or drop the guard
//! let sum = blocking::run(locks.lock("report"), |_held| 19 + 23)?;
//! # assert_eq!(sum, 42);
//! block_on(locks.close()) // the last call of a program: waits for releases under way
//! # }
//! ```
//!
//! `block_on` takes each future of the library whose output is a `Result`: readers, permits, several locks at
//! once, owners, campaigns. The program needs no dependency on tokio. The thread `lockwell-blocking` drives
//! the connections; all clients of the process share it. Leases are renewed by another thread of the library,
//! whatever the program does meanwhile. Guards may be dropped anywhere. A thread that waits for a loss waits
//! for `async { Ok::<_, lockwell::Error>(guard.lost().await) }`.
//!
//! Within an async runtime `block_on` fails with an error of kind
//! [`Unsupported`](crate::ErrorKind::Unsupported). An async task awaits the future. A closure of
//! `spawn_blocking` uses `tokio::runtime::Handle::current().block_on(...)`.

pub use lockwell_core::blocking::{block_on, run, try_run};
