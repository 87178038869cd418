//! Waits on threads that are not those of an async runtime.

use std::future::Future;

use tokio::runtime::Handle;

use crate::system::OwnRuntime;
use crate::{Error, ErrorKind, Result};

/// Waits for a future on the calling thread.
pub(super) fn wait<T>(runtime: &OwnRuntime, future: impl Future<Output = T>) -> Result<T> {
    check_outside()?;
    Ok(runtime.block_on(future))
}

/// Refuses to wait on a thread of an async runtime.
pub(super) fn check_outside() -> Result<()> {
    if Handle::try_current().is_ok() {
        let text = "lockwell::blocking was called within an async runtime, whose thread it would stop: use lockwell::Locks \
                    there, and Handle::block_on in spawn_blocking";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}
