//! Operations under way, on a thread of their own.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};

use lockwell::backend::lock;
use lockwell::{Error, ErrorKind, Result};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::awaited::Awaited;
use crate::error::{raise, raised};
use crate::hold::{Place, drop_soon};
use crate::mailbox::{Inbox, Mailbox};
use crate::owned::Owned;
use crate::runtime::RUNTIME;

/// What an operation yields. If it is dropped, the locks in it are released.
pub(crate) trait Outcome: Send + 'static {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// The locks in it.
    fn places(&self) -> Vec<Weak<Place>> {
        Vec::new()
    }

    /// This outcome once more, where it may be taken twice.
    fn again(&self) -> Option<Box<dyn Outcome>> {
        None
    }
}

/// `None`.
pub(crate) struct Nothing;

impl Outcome for Nothing {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// What Python has a type of its own for.
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: for<'py> IntoPyObject<'py> + Clone + Send + 'static> Outcome for Plain<T> {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.into_py_any(py)
    }

    fn again(&self) -> Option<Box<dyn Outcome>> {
        Some(Box::new(Self(self.0.clone())))
    }
}

enum State {
    Running {
        cancel: oneshot::Sender<Awaited>,
        tell: Option<(Arc<Inbox>, u64)>,
    },
    Done(Result<Box<dyn Outcome>>),
    /// The result was taken, with these locks; or the operation was cancelled.
    Over(Vec<Weak<Place>>),
}

type Shared = Arc<Mutex<State>>;

/// Reports that a task has ended without a result, since it has panicked, unless it reports its result first.
struct Reporter(Option<Shared>);

impl Reporter {
    fn report(mut self, outcome: Result<Box<dyn Outcome>>) {
        if let Some(shared) = self.0.take() {
            finish(&shared, outcome);
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            let text = "the operation has panicked; the standard error has its message";
            finish(&shared, Err(Error::new(ErrorKind::Internal, text)));
        }
    }
}

fn finish(shared: &Shared, outcome: Result<Box<dyn Outcome>>) {
    let mut state = lock(shared);
    let State::Running { tell, .. } = &mut *state else {
        drop(state);
        // It was cancelled.
        return drop(outcome);
    };
    let tell = tell.take();
    *state = State::Done(outcome);
    // Under the lock: when Python sees that the operation has ended, nothing is posted for it any more.
    if let Some((inbox, number)) = tell {
        inbox.post(number);
    }
}

/// Begins an operation. When it is cancelled, its future is dropped.
pub(crate) fn start<T: Outcome>(future: impl Future<Output = Result<T>> + Send + 'static) -> PyResult<Op> {
    let (cancel, mut cancelled) = oneshot::channel();
    let shared = Arc::new(Mutex::new(State::Running { cancel, tell: None }));
    let reporter = Reporter(Some(Arc::clone(&shared)));
    let runtime = RUNTIME.get().map_err(raise)?;
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        tokio::select! {
            biased;
            outcome = future => reporter.report(outcome.map(|outcome| Box::new(outcome) as Box<dyn Outcome>)),
            _ = &mut cancelled => {
                reporter.report(Err(Error::new(ErrorKind::Cancelled, "the call was cancelled")));
            }
        }
        // By now the future was dropped, so that its claim is among the releases of its client; or its result
        // was dropped. The end of the process waits for that.
        drop(cancelled);
    }));
    Ok(Op { shared: Owned::new(shared) })
}

/// An operation under way. Dropping it cancels it.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Op {
    shared: Owned<Shared>,
}

#[pymethods]
impl Op {
    /// Whether it has ended.
    fn done(&self) -> PyResult<bool> {
        Ok(!matches!(&*lock(self.shared.get()?), State::Running { .. }))
    }

    /// Posts this number to the mailbox when the operation ends, or now if it has ended. A later call
    /// replaces an earlier one.
    fn notify(&self, mailbox: &Mailbox, number: u64) -> PyResult<()> {
        let mut state = lock(self.shared.get()?);
        if let State::Running { tell, .. } = &mut *state {
            *tell = Some((Arc::clone(&mailbox.inbox), number));
        } else {
            drop(state);
            mailbox.inbox.post(number);
        }
        Ok(())
    }

    /// The result, or the exception of the operation. Locks can be taken once. Other results can be taken again by who
    /// was interrupted before it had one.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = lock(self.shared.get()?);
        let again = match &*state {
            State::Running { .. } => return Err(PyRuntimeError::new_err("the operation has not ended")),
            State::Done(Ok(outcome)) => outcome.again(),
            State::Done(Err(_)) | State::Over(_) => None,
        };
        let next = match (again, &*state) {
            (Some(again), _) => State::Done(Ok(again)),
            (None, State::Done(Ok(outcome))) => State::Over(outcome.places()),
            (None, _) => State::Over(Vec::new()),
        };
        let outcome = std::mem::replace(&mut *state, next);
        drop(state);
        match outcome {
            State::Done(Ok(outcome)) => outcome.into_python(py),
            State::Done(Err(error)) => Err(raised(py, &error)),
            _ => Err(PyRuntimeError::new_err("the result was taken already")),
        }
    }

    /// Cancels the operation: a claim is withdrawn, and a lock that it has got is released, also if the result was
    /// taken. An exception may have stopped who has taken it, and its traceback keeps the result.
    fn cancel(&self) {
        if let Some(State::Over(places)) = self.end() {
            places.iter().filter_map(Weak::upgrade).for_each(|place| drop_soon(&place));
        }
    }
}

impl Op {
    /// Ends the operation, unless its result was taken. Returns in which state it was.
    fn end(&self) -> Option<State> {
        match std::mem::replace(&mut *lock(self.shared.here()?), State::Over(Vec::new())) {
            State::Running { cancel, .. } => {
                // It fails if the task has just ended.
                drop(cancel.send(Awaited::new()));
                None
            }
            // If nobody has taken the result, its locks are released when this is dropped.
            state => Some(state),
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        drop(self.end());
    }
}
