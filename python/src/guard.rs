//! A held lock.

use std::sync::{Arc, Mutex, Weak};

use lockwell::backend::lock;
use lockwell::sql::VerifyStatement as _;
use lockwell::{Error, ErrorKind, LeaseState, LockGuard, LockHandle};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use tokio::task::JoinSet;

use crate::error::raise;
use crate::hold::{Hold, Place, drop_soon};
use crate::op::{Nothing, Op, Outcome, Plain, start};
use crate::owned::Owned;
use crate::show::{self, mode};
use crate::words::{state, word};

/// A held lock. Dropping it releases the lock, but not in a forked child.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Guard {
    handle: Owned<LockHandle>,
    /// Taken when the lock is released.
    hold: Owned<Arc<Place>>,
    is_shared: bool,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self {
            handle: Owned::new(hold.handle()),
            is_shared: matches!(hold, Hold::Shared(_)),
            hold: Owned::new(Arc::new(Mutex::new(Some(hold)))),
        }
    }

    pub(crate) fn place(&self) -> Option<Weak<Place>> {
        self.hold.here().map(Arc::downgrade)
    }

    fn take(&self) -> PyResult<Hold> {
        // Not under the mutex: Python makes the exception, and may run a signal handler or another thread
        // meanwhile, which would wait for the mutex with the interpreter lock.
        let hold = lock(self.hold.get()?).take();
        hold.ok_or_else(|| self.released_already())
    }

    fn released_already(&self) -> PyErr {
        let error = Error::new(ErrorKind::NotHeld, "the lock was released already");
        raise(match self.handle.here() {
            Some(handle) => error.for_lock(handle.name()),
            None => error,
        })
    }

    /// Whether an owner has released this guard, and holds the lock by others perhaps.
    fn is_left(&self) -> bool {
        self.is_shared && !self.is_open()
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
        Ok(self.handle.get()?.is_held() && !self.is_left())
    }

    fn check(&self) -> PyResult<()> {
        self.handle.get()?.check().map_err(raise)?;
        if self.is_left() { Err(self.released_already()) } else { Ok(()) }
    }

    /// The state of the lease, and the reason of a loss.
    #[getter]
    fn state(&self) -> PyResult<(&'static str, Option<String>)> {
        let mut lease = self.handle.get()?.lease_state();
        if self.is_left() && !matches!(lease, LeaseState::Lost(_)) {
            lease = LeaseState::Released;
        }
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

    /// The statement that checks the lock in a transaction of its database.
    fn verify_statement(&self) -> PyResult<String> {
        if self.is_left() {
            return Err(self.released_already());
        }
        self.handle.get()?.verify_statement().map_err(raise)
    }

    /// Ends with the hold: with the reason of a loss, or nothing if the lock was released.
    fn ended(&self) -> PyResult<Op> {
        let handle = self.handle.get()?.clone();
        start(async move { Ok(Plain(handle.ended().await.map(word))) })
    }

    /// Ends with the first loss of one of these: its name, and the reason; or with nothing, when all were
    /// released.
    #[staticmethod]
    fn first_lost(guards: Vec<PyRef<'_, Self>>) -> PyResult<Op> {
        let handles = guards.iter().map(|guard| guard.handle.get().cloned()).collect::<PyResult<Vec<_>>>()?;
        start(async move {
            let mut ends = JoinSet::new();
            for handle in handles {
                ends.spawn(async move { handle.ended().await.map(|loss| (handle.name().clone(), loss)) });
            }
            while let Some(end) = ends.join_next().await {
                if let Ok(Some((name, loss))) = end {
                    return Ok(Plain(Some((name.as_str().to_owned(), word(loss)))));
                }
            }
            Ok(Plain(None))
        })
    }

    /// Releases the lock. It goes on if the operation is cancelled.
    fn release(&self) -> PyResult<Op> {
        let hold = self.take()?;
        start(async move { hold.release().await.map(|()| Nothing) })
    }

    /// Writes the record of the lock.
    fn write_record(&self, value: &[u8]) -> PyResult<Op> {
        self.check()?;
        let (handle, value) = (self.handle.get()?.clone(), value.to_vec());
        start(async move { handle.write_record(value).await.map(|()| Nothing) })
    }

    /// The record of the lock, as the holder before or this one has written it.
    fn read_record(&self) -> PyResult<Op> {
        self.check()?;
        let handle = self.handle.get()?.clone();
        start(async move { handle.read_record().await.map(|found| Plain(found.map(show::record))) })
    }

    /// Whether it is to be released still, by this process.
    fn is_open(&self) -> bool {
        self.hold.here().is_some_and(|hold| lock(hold).is_some())
    }

    /// Releases the lock in the background, if it was not released.
    fn drop_soon(&self) {
        if let Some(place) = self.hold.here() {
            drop_soon(place);
        }
    }

    /// Turns a writer into a reader: another guard. This one ends, unless the mode or the backend does not
    /// allow it.
    fn downgrade(&self) -> PyResult<Op> {
        if self.is_shared {
            let text = "the lock of an owner cannot be downgraded: its other guards may be those of a writer";
            return Err(raise(Error::new(ErrorKind::Unsupported, text).for_lock(self.handle.get()?.name())));
        }
        let (hold, place) = (self.take()?, Arc::clone(self.hold.get()?));
        start(async move {
            let Hold::Sole(guard) = hold else { return Err(Error::new(ErrorKind::Internal, "shared")) };
            let (error, left) = match guard.downgrade().await {
                Ok(reader) => return Ok(Taken::new(Some(Hold::Sole(reader)))),
                Err(refused) => refused.into_parts(),
            };
            // It is still held as before.
            *lock(&place) = left.map(Hold::Sole);
            Err(error)
        })
    }
}

/// A lock that was taken, or none.
pub(crate) struct Taken(Option<Guard>);

impl Taken {
    pub(crate) fn new(hold: Option<Hold>) -> Self {
        Self(hold.map(Guard::new))
    }
}

impl Outcome for Taken {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.into_py_any(py)
    }

    fn places(&self) -> Vec<Weak<Place>> {
        self.0.iter().filter_map(Guard::place).collect()
    }
}

/// Several locks that were taken, or none of them.
pub(crate) struct TakenAll(Option<Vec<Guard>>);

impl TakenAll {
    pub(crate) fn new(guards: Option<Vec<LockGuard>>) -> Self {
        Self(guards.map(|guards| guards.into_iter().map(Hold::Sole).map(Guard::new).collect()))
    }
}

impl Outcome for TakenAll {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.into_py_any(py)
    }

    fn places(&self) -> Vec<Weak<Place>> {
        self.0.iter().flatten().filter_map(Guard::place).collect()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.drop_soon();
    }
}
