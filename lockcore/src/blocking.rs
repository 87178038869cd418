//! Locks for programs without async.

use std::future::IntoFuture;

use tokio::runtime::Handle;

use crate::system::SharedRuntime;
use crate::{Error, ErrorKind, ErrorWith, LockHandle, LockRequest, Result};

/// The thread that drives the connections of blocking callers.
static RUNTIME: SharedRuntime = SharedRuntime::new("lockwell-blocking");

/// Waits on the calling thread for a request, or for any other future of the library.
///
/// # Errors
/// Those of the future. [`Unsupported`](ErrorKind::Unsupported) within an async runtime, whose thread a
/// blocking call would stop; the future is dropped then. [`Internal`](ErrorKind::Internal) if the operating
/// system refuses a thread.
pub fn block_on<T, E: From<Error>>(future: impl IntoFuture<Output = Result<T, E>>) -> Result<T, E> {
    if Handle::try_current().is_ok() {
        let text = "lockwell::blocking was called within an async runtime, whose thread it would stop: await the future there, \
                    or use Handle::block_on in spawn_blocking";
        return Err(Error::new(ErrorKind::Unsupported, text).into());
    }
    RUNTIME.get()?.block_on(future.into_future())
}

/// Waits for the lock, runs `work` while it is held, and releases it, also if `work` panics.
///
/// Blocking work cannot be stopped when the lock is lost: let it call [`LockHandle::check`] between its
/// steps. If the lock was lost, this fails with [`Lost`](ErrorKind::Lost) at the end of the work, and the
/// error contains its [value](ErrorWith::into_left).
///
/// # Errors
/// Those of the request, and of [`block_on`].
pub fn run<T>(request: LockRequest, work: impl FnOnce(&LockHandle) -> T) -> Result<T, ErrorWith<T>> {
    let guard = block_on(request)?;
    let value = work(&guard.handle());
    let released = match guard.check() {
        Ok(()) => block_on(guard.release()),
        lost => lost,
    };
    match released {
        Err(error) if error.kind() == ErrorKind::Lost => Err(ErrorWith::new(error, Some(value))),
        // The work was done under the lock. The keeper repeats a release that failed.
        _ => Ok(value),
    }
}

/// As [`run`], for work that can fail: one `?` is enough for both errors.
///
/// ```
/// # use lockwell_core as lockwell;
/// let locks = lockwell::Locks::in_memory();
/// let text: Result<String, Box<dyn std::error::Error>> =
///     lockwell::blocking::try_run(locks.lock("report"), |_held| {
///         Ok(std::fs::read_to_string("no/such/report.txt")?)
///     });
/// assert!(text.is_err());
/// ```
///
/// # Errors
/// That of the work, those of the request, and those of [`block_on`]. If the lock was lost before the end of
/// the work, the error is of kind [`Lost`](ErrorKind::Lost), and the result of the work is dropped.
pub fn try_run<T, E: From<Error>>(
    request: LockRequest,
    work: impl FnOnce(&LockHandle) -> Result<T, E>,
) -> Result<T, E> {
    run(request, work).map_err(Error::from)?
}

#[cfg(test)]
mod tests;
