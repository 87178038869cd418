//! The leaders of a name, one after the other.

use std::sync::Arc;

use lockwell::Observation;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::op::{Op, Value, start};
use crate::owned::Owned;

/// The leaders of a name.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Observer {
    observation: Owned<Arc<Mutex<Observation>>>,
}

impl Observer {
    pub(crate) fn new(observation: Observation) -> Self {
        Self { observation: Owned::new(Arc::new(Mutex::new(observation))) }
    }
}

#[pymethods]
impl Observer {
    /// Waits for the next change; the first call returns the current leader. A cancelled call misses nothing.
    fn next(&self) -> PyResult<Op> {
        let observation = Arc::clone(self.observation.get()?);
        start(async move { observation.lock().await.next().await.map(Value::Leader) })
    }
}
