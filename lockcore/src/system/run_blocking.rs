//! Calls that may block, on threads that the operating system may refuse.

use tokio::sync::oneshot;

use crate::{Error, ErrorKind, Result};

/// Runs this on a thread of its own.
pub(super) fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop).map_err(|why| no_thread(name, why))
}

/// The error where the operating system starts no thread.
pub(super) fn no_thread(name: &str, why: std::io::Error) -> Error {
    let text = format!("the thread {name} cannot be started; is there a limit of processes, or of memory?");
    Error::new(ErrorKind::Overloaded, text).with_source(why)
}

/// Runs this on a thread of its own, which may block. `spawn_blocking` of tokio panics where the operating
/// system starts no thread, and it waits while the application uses all threads that a runtime has for this.
///
/// # Errors
/// [`Overloaded`](ErrorKind::Overloaded) if no thread can be started, [`Internal`](ErrorKind::Internal) if
/// `work` panics.
///
/// # Cancel safety
/// Once it was polled, the call runs to its end, also if this future is dropped.
pub async fn run_blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (send, done) = oneshot::channel();
    start_thread(name, move || drop(send.send(work())))?;
    done.await.map_err(|_| Error::new(ErrorKind::Internal, format!("the thread {name} has panicked")))
}
