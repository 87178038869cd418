//! Operations under way, on a thread of their own.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell::{
    Error, ErrorKind, Finding, Leader, LockEvent, LockGuard, LockName, LockStatus, Locks, Loss, Result,
};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::background::{RUNTIME, release_later};
use crate::client::Client;
use crate::error::{raise, raised};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::mailbox::{Inbox, Mailbox, lock};
use crate::owned::Owned;
use crate::show;
use crate::words::word;

/// What an operation yields.
pub(crate) enum Value {
    Nothing,
    Client(Locks),
    Guard(Option<Hold>),
    Guards(Vec<LockGuard>),
    Count(usize),
    Seconds(Option<Duration>),
    /// How a hold has ended: `None` if it was released.
    Ended(Option<Loss>),
    Lost(LockName, Loss),
    /// `None` is the end of the stream.
    Event(Option<LockEvent>),
    Findings(Vec<Finding>),
    Status(LockStatus),
    Statuses(Vec<LockStatus>),
    Leader(Option<Leader>),
}

enum State {
    Running {
        cancel: oneshot::Sender<()>,
        tell: Option<(Arc<Inbox>, u64)>,
    },
    Done(Result<Value>),
    /// The result was taken, or the operation was cancelled.
    Over,
}

type Shared = Arc<Mutex<State>>;

/// Reports that a task has ended without a result, since it has panicked, unless it reports its result first.
struct Reporter(Option<Shared>);

impl Reporter {
    fn report(mut self, outcome: Result<Value>) {
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

fn finish(shared: &Shared, outcome: Result<Value>) {
    let mut state = lock(shared);
    let State::Running { tell, .. } = &mut *state else {
        drop(state);
        // It was cancelled.
        return outcome.map_or((), release_all);
    };
    let tell = tell.take();
    *state = State::Done(outcome);
    // Under the lock: when Python sees that the operation has ended, nothing is posted for it any more.
    if let Some((inbox, number)) = tell {
        inbox.post(number);
    }
}

/// Begins an operation. When it is cancelled, its future is dropped.
pub(crate) fn start(future: impl Future<Output = Result<Value>> + Send + 'static) -> PyResult<Op> {
    let (cancel, cancelled) = oneshot::channel();
    let shared = Arc::new(Mutex::new(State::Running { cancel, tell: None }));
    let reporter = Reporter(Some(Arc::clone(&shared)));
    let runtime = RUNTIME.get().map_err(raise)?;
    // It runs to its end without its task.
    drop(runtime.spawn(async move {
        tokio::select! {
            biased;
            outcome = future => reporter.report(outcome),
            _ = cancelled => reporter.report(Err(Error::new(ErrorKind::Cancelled, "the call was cancelled"))),
        }
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

    /// The result, once; or the exception of the operation.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = lock(self.shared.get()?);
        if matches!(&*state, State::Running { .. }) {
            return Err(PyRuntimeError::new_err("the operation has not ended"));
        }
        let outcome = std::mem::replace(&mut *state, State::Over);
        drop(state);
        match outcome {
            State::Done(Ok(value)) => to_python(py, value),
            State::Done(Err(error)) => Err(raised(py, &error)),
            _ => Err(PyRuntimeError::new_err("the result was taken already")),
        }
    }

    /// Cancels the operation: a claim is withdrawn, and a lock that it has got is released. Nothing happens
    /// if its result was taken.
    fn cancel(&self) {
        let Some(shared) = self.shared.here() else { return };
        let state = std::mem::replace(&mut *lock(shared), State::Over);
        match state {
            // It fails if the task has just ended.
            State::Running { cancel, .. } => cancel.send(()).unwrap_or_default(),
            State::Done(Ok(value)) => release_all(value),
            State::Done(Err(_)) | State::Over => (),
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// Releases the locks of a result that nobody takes.
fn release_all(value: Value) {
    match value {
        Value::Guard(Some(guard)) => release_later(guard),
        Value::Guards(guards) => guards.into_iter().map(Hold::Sole).for_each(release_later),
        _ => (),
    }
}

fn to_python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Nothing
        | Value::Guard(None)
        | Value::Ended(None)
        | Value::Leader(None)
        | Value::Event(None)
        | Value::Seconds(None) => py.None(),
        Value::Client(locks) => Py::new(py, Client::new(locks))?.into_any(),
        Value::Guard(Some(guard)) => Py::new(py, Guard::new(guard))?.into_any(),
        Value::Guards(guards) => {
            let guards: Vec<_> = guards.into_iter().map(|guard| Guard::new(Hold::Sole(guard))).collect();
            guards.into_pyobject(py)?.into_any().unbind()
        }
        Value::Count(number) => number.into_pyobject(py)?.into_any().unbind(),
        Value::Seconds(Some(time)) => time.as_secs_f64().into_pyobject(py)?.into_any().unbind(),
        Value::Lost(name, loss) => (name.as_str(), word(loss)).into_pyobject(py)?.into_any().unbind(),
        Value::Event(Some(event)) => show::event(&event).into_pyobject(py)?.into_any().unbind(),
        Value::Findings(all) => {
            let all: Vec<_> = all.into_iter().map(show::finding).collect();
            all.into_pyobject(py)?.into_any().unbind()
        }
        Value::Ended(Some(loss)) => word(loss).into_pyobject(py)?.into_any().unbind(),
        Value::Status(status) => show::status(&status).into_pyobject(py)?.into_any().unbind(),
        Value::Statuses(all) => {
            let all: Vec<_> = all.iter().map(show::status).collect();
            all.into_pyobject(py)?.into_any().unbind()
        }
        Value::Leader(Some(leader)) => {
            (leader.token.get(), leader.label).into_pyobject(py)?.into_any().unbind()
        }
    })
}
