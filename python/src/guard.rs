//! A held lock.

use std::sync::{Arc, Mutex};

use lockwell::{Error, ErrorKind, LeaseState, LockGuard, LockHandle};
use pyo3::prelude::*;

use crate::background::release_later;
use crate::error::raise;
use crate::mailbox::lock;
use crate::op::{Op, Value, start};
use crate::owned::Owned;
use crate::show::mode;
use crate::words::{state, word};

/// A held lock. Dropping it releases the lock, but not in a forked child.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Guard {
    handle: Owned<LockHandle>,
    /// Taken when the lock is released.
    guard: Owned<Arc<Mutex<Option<LockGuard>>>>,
}

impl Guard {
    pub(crate) fn new(guard: LockGuard) -> Self {
        Self { handle: Owned::new(guard.handle()), guard: Owned::new(Arc::new(Mutex::new(Some(guard)))) }
    }

    fn take(&self) -> PyResult<LockGuard> {
        let guard = lock(self.guard.get()?).take();
        guard.ok_or_else(|| {
            let error = Error::new(ErrorKind::NotHeld, "the lock was released already");
            raise(match self.handle.here() {
                Some(handle) => error.for_lock(handle.name()),
                None => error,
            })
        })
    }
}

#[pymethods]
impl Guard {
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.handle.get()?.name().as_str().to_owned())
    }

    #[getter]
    fn token(&self) -> PyResult<u64> {
        Ok(self.handle.get()?.token().get())
    }

    #[getter]
    fn hold_id(&self) -> PyResult<String> {
        Ok(self.handle.get()?.hold_id().to_string())
    }

    /// The kind of hold, and the number of permits.
    #[getter]
    fn mode(&self) -> PyResult<(&'static str, Option<u32>)> {
        Ok(mode(self.handle.get()?.claim().mode()))
    }

    #[getter]
    fn is_held(&self) -> PyResult<bool> {
        Ok(self.handle.get()?.is_held())
    }

    fn check(&self) -> PyResult<()> {
        self.handle.get()?.check().map_err(raise)
    }

    /// The state of the lease, and the reason of a loss.
    #[getter]
    fn state(&self) -> PyResult<(&'static str, Option<String>)> {
        let lease = self.handle.get()?.lease_state();
        let loss = if let LeaseState::Lost(loss) = lease { Some(word(loss)) } else { None };
        Ok((state(lease), loss))
    }

    #[getter]
    fn renewal_failure(&self) -> PyResult<Option<String>> {
        Ok(self.handle.get()?.renewal_failure())
    }

    #[getter]
    fn time_left(&self) -> PyResult<f64> {
        Ok(self.handle.get()?.time_left().as_secs_f64())
    }

    fn progress(&self) -> PyResult<()> {
        self.handle.get()?.progress();
        Ok(())
    }

    /// Ends with the hold: with the reason of a loss, or nothing if the lock was released.
    fn ended(&self) -> PyResult<Op> {
        let handle = self.handle.get()?.clone();
        start(async move { Ok(Value::Ended(handle.ended().await)) })
    }

    /// Releases the lock. It goes on if the operation is cancelled.
    fn release(&self) -> PyResult<Op> {
        let guard = self.take()?;
        start(async move { guard.release().await.map(|()| Value::Nothing) })
    }

    /// Whether it is to be released still, by this process.
    fn is_open(&self) -> bool {
        self.guard.here().is_some_and(|guard| lock(guard).is_some())
    }

    /// Releases the lock in the background, if it was not released.
    fn drop_soon(&self) {
        if let Some(guard) = self.guard.here()
            && let Some(guard) = lock(guard).take()
        {
            release_later(guard);
        }
    }

    /// Turns a writer into a reader: another guard. This one ends, unless the mode or the backend does not
    /// allow it.
    fn downgrade(&self) -> PyResult<Op> {
        let (guard, place) = (self.take()?, Arc::clone(self.guard.get()?));
        start(async move {
            let (error, left) = match guard.downgrade().await {
                Ok(reader) => return Ok(Value::Guard(Some(reader))),
                Err(refused) => refused.into_parts(),
            };
            // It is still held as before.
            *lock(&place) = left;
            Err(error)
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.drop_soon();
    }
}
