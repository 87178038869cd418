//! Releases that nobody waits for.

use pyo3::prelude::*;

use crate::awaited::all_ended;
use crate::op::{Nothing, Op, start};

/// Ends when all releases that nobody waits for have their answers, and the claims of calls that were
/// cancelled are withdrawn.
#[pyfunction]
pub(crate) fn released() -> PyResult<Op> {
    let ended = all_ended();
    start(async move {
        ended.await;
        // A call that was cancelled has dropped its request by now.
        lockwell::wait_for_releases().await;
        Ok(Nothing)
    })
}
