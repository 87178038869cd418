//! The options of a request.

use std::time::Duration;

use lockwell::{Error, ErrorKind, LockRequest, Result};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::error::raise;

/// What a caller has set. Times are in seconds.
#[derive(FromPyObject)]
pub(crate) struct Options {
    #[pyo3(item, default)]
    ttl: Option<f64>,
    #[pyo3(item, default)]
    wait: Option<f64>,
    #[pyo3(item)]
    wait_forever: bool,
    #[pyo3(item, default)]
    label: Option<String>,
    #[pyo3(item, default)]
    traceparent: Option<String>,
    #[pyo3(item, default)]
    max_hold: Option<f64>,
    #[pyo3(item, default)]
    progress_within: Option<f64>,
    #[pyo3(item, default)]
    lock_delay: Option<f64>,
}

/// A time of Python.
pub(crate) fn seconds(what: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let text = format!("{what} is a number of seconds, at least 0, not {seconds}");
        Error::new(ErrorKind::InvalidInput, text)
    })
}

/// A number of permits of Python.
pub(crate) fn permits(number: &Bound<'_, PyAny>) -> PyResult<u32> {
    counted(number, "a semaphore", "permits")
}

/// A number of attempts of Python.
pub(crate) fn attempts(number: &Bound<'_, PyAny>) -> PyResult<u32> {
    counted(number, "a job", "attempts")
}

fn counted(number: &Bound<'_, PyAny>, what: &str, of: &str) -> PyResult<u32> {
    number.extract().map_err(|error: PyErr| {
        if !error.is_instance_of::<PyOverflowError>(number.py()) {
            return error;
        }
        let text = format!("{what} has 1 to {} {of}, not {number}", u32::MAX);
        raise(Error::new(ErrorKind::InvalidInput, text))
    })
}

impl Options {
    /// The request with these options. `through_grace` is for tries: a request that waits does so anyway.
    pub(crate) fn apply<W>(self, mut request: LockRequest<W>, through_grace: bool) -> Result<LockRequest<W>> {
        if let Some(ttl) = self.ttl {
            request = request.ttl(seconds("ttl", ttl)?);
        }
        if self.wait_forever {
            request = request.wait_forever();
        } else if let Some(wait) = self.wait {
            request = request.wait(seconds("wait", wait)?);
        }
        if let Some(label) = self.label {
            request = request.label(label);
        }
        if let Some(traceparent) = self.traceparent {
            request = request.traceparent(traceparent);
        }
        if let Some(longest) = self.max_hold {
            request = request.max_hold(seconds("max_hold", longest)?);
        }
        if let Some(every) = self.progress_within {
            request = request.progress_within(seconds("progress_within", every)?);
        }
        if let Some(delay) = self.lock_delay {
            request = request.lock_delay(seconds("lock_delay", delay)?);
        }
        if through_grace {
            request = request.through_grace();
        }
        Ok(request)
    }
}
