//! Functions of Python that clean up however early an exception stops them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

// A method after which nothing must be held: where it raises, `_drop` of its object is called.
//
// A signal handler may raise before the first line of a function of Python, and so before its `try`. The traceback
// then keeps what the arguments hold. A function of Rust has no such moment.
//
// No comment of documentation: it would hide that of the function.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Shielded {
    function: Py<PyAny>,
}

#[pymethods]
impl Shielded {
    fn __get__(
        slf: PyRef<'_, Self>,
        object: Option<Bound<'_, PyAny>>,
        _class: Option<Bound<'_, PyType>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let shielded = slf.into_pyobject(py)?;
        let Some(object) = object else { return Ok(shielded.into_any().unbind()) };
        Ok(py.import("types")?.getattr("MethodType")?.call1((shielded, object))?.unbind())
    }

    #[pyo3(signature = (*arguments, **others))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let outcome = self.function.call(py, arguments, others);
        if outcome.is_err() {
            let object = arguments.get_item(0)?;
            if let Err(error) = object.call_method0("_drop") {
                error.write_unraisable(py, Some(&object));
            }
        }
        outcome
    }

    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    #[getter]
    fn __doc__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.function.getattr(py, "__doc__")
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.function.getattr(py, "__name__")
    }
}

/// A decorator: makes a [`Shielded`] method.
#[pyfunction]
pub(crate) fn shielded(function: Py<PyAny>) -> Shielded {
    Shielded { function }
}
