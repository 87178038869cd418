//! The exceptions of the library. Their classes are in Python, in `lockwell/_errors.py`.

use lockwell::{Error, ErrorKind, LockName};
use pyo3::prelude::*;

use crate::words::word;

/// The kinds of errors, by their words.
#[pyfunction]
pub(crate) fn kinds() -> Vec<String> {
    ErrorKind::ALL.iter().map(word).collect()
}

/// The exception for an error. The library keeps passwords and owner ids out of its errors.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let made = py.import("lockwell._errors").and_then(|module| {
        let facts = (
            word(error.kind()),
            format!("{error:#}"),
            error.operation().map(word),
            error.lock().map(LockName::as_str),
            error.backend(),
            error.servers(),
            error.is_retryable(),
        );
        module.call_method1("made", facts)
    });
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception for an error, for threads that run Python now.
pub(crate) fn raise(error: Error) -> PyErr {
    let raised = Python::try_attach(|py| raised(py, &error));
    raised.unwrap_or_else(|| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
}

/// The exception for an object of the parent process.
pub(crate) fn forked() -> PyErr {
    let made = Python::try_attach(|py| {
        let made = py.import("lockwell._errors").and_then(|module| module.call_method0("forked"));
        made.map_or_else(|failure| failure, PyErr::from_value)
    });
    made.unwrap_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("an object of the parent process"))
}
