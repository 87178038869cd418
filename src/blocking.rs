//! The same locks for programs without async: [`block_on`] waits for a request on the calling thread.
//!
//! ```
//! use lockwell::blocking::{self, block_on};
//!
//! # fn main() -> lockwell::Result<()> {
//! let locks = block_on(lockwell::connect("memory://"))?;
//! let guard = block_on(locks.lock("backup"))?;
//! guard.check()?; // between the steps of long work
//! block_on(guard.release())?; // or drop the guard
//! let sum = blocking::run(locks.lock("report"), |_held| 19 + 23)?;
//! # assert_eq!(sum, 42);
//! block_on(locks.close()) // the last call of a program: waits for releases under way
//! # }
//! ```
//!
//! All that is `async` works so: readers, permits, several locks at once, owners, campaigns. The thread
//! `lockwell-blocking` drives the connections; all clients of the process share it. Leases are renewed by
//! another thread of the library, whatever the program does meanwhile. Guards may be dropped anywhere.
//!
//! Within an async runtime `block_on` fails with an error of kind
//! [`Unsupported`](crate::ErrorKind::Unsupported), even in `spawn_blocking`: there,
//! `Handle::current().block_on(locks.lock("a").into_future())` works.

pub use lockcore::blocking::{block_on, run};
