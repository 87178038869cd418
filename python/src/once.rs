//! Jobs that run once for a key. Python does the work, between the steps that are here.

use std::sync::{Arc, Weak};

use lockwell::request::{self, JobSteps};
use lockwell::{LockHandle, Once, Result};
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use tokio::sync::{Mutex, oneshot};

use crate::guard::Guard;
use crate::hold::{Hold, Place};
use crate::op::{Nothing, Op, Outcome, start};
use crate::owned::Owned;
use crate::runtime::RUNTIME;
use crate::show;

/// An attempt at a job.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Attempt {
    steps: Owned<(Arc<Mutex<JobSteps>>, LockHandle)>,
    #[pyo3(get)]
    number: u32,
    /// What watches over the time that the work takes ends with this.
    _over: Owned<oneshot::Sender<()>>,
}

impl Attempt {
    fn new(steps: JobSteps, handle: LockHandle, number: u32) -> Result<Self> {
        let (over, ends) = oneshot::channel();
        let too_long = steps.too_long();
        let steps = Arc::new(Mutex::new(steps));
        let (watched, held) = (Arc::clone(&steps), handle.clone());
        drop(RUNTIME.get()?.spawn(async move {
            tokio::select! {
                () = too_long => watched.lock().await.failed(&held).await,
                _ = ends => (),
            }
        }));
        Ok(Self { steps: Owned::new((steps, handle)), number, _over: Owned::new(over) })
    }
}

#[pymethods]
impl Attempt {
    /// The work has succeeded: ends when that is recorded.
    fn succeeded(&self) -> PyResult<Op> {
        let (steps, handle) = self.steps.get()?.clone();
        start(async move { steps.lock().await.succeeded(&handle).await.map(|()| Nothing) })
    }

    /// The work has failed by itself: ends when that is recorded, or cannot be.
    fn failed(&self) -> PyResult<Op> {
        let (steps, handle) = self.steps.get()?.clone();
        start(async move {
            steps.lock().await.failed(&handle).await;
            Ok(Nothing)
        })
    }
}

/// An attempt under its lock, or why there is none.
pub(crate) enum Begun {
    Attempt(Guard, Attempt),
    Left(&'static str, show::JobShown),
}

impl Begun {
    pub(crate) fn new(begun: Once<request::Attempt>) -> Result<Self> {
        Ok(match begun {
            Once::Ran(request::Attempt { steps, guard, number }) => {
                let attempt = Attempt::new(steps, guard.handle(), number)?;
                Self::Attempt(Guard::new(Hold::Sole(guard)), attempt)
            }
            Once::Done(job) => Self::Left("done", show::job(job)),
            Once::FailedElsewhere(job) => Self::Left("failed_elsewhere", show::job(job)),
            Once::GivenUp(job) => Self::Left("given_up", show::job(job)),
        })
    }
}

impl Outcome for Begun {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match *self {
            Self::Attempt(guard, attempt) => ("ran", guard, attempt).into_py_any(py),
            Self::Left(state, job) => (state, job).into_py_any(py),
        }
    }

    fn places(&self) -> Vec<Weak<Place>> {
        if let Self::Attempt(guard, _) = self { guard.place().into_iter().collect() } else { Vec::new() }
    }
}
