//! What comes one after the other: the leaders of a name, and the events of a client.

use std::sync::Arc;

use lockwell::Observation;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::op::{Op, Plain, start};
use crate::owned::Owned;
use crate::show;

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
    /// Waits for the next change; the first call returns the current leader.
    fn next(&self) -> PyResult<Op> {
        let observation = Arc::clone(self.observation.get()?);
        start(async move {
            let leader = observation.lock().await.next().await?;
            Ok(Plain(leader.map(|leader| (leader.token.get(), leader.label))))
        })
    }
}

/// The events of a client.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Events {
    events: Owned<Arc<Mutex<lockwell::Events>>>,
}

impl Events {
    pub(crate) fn new(events: lockwell::Events) -> Self {
        Self { events: Owned::new(Arc::new(Mutex::new(events))) }
    }
}

#[pymethods]
impl Events {
    /// Waits for the next event; nothing at the end.
    fn next(&self) -> PyResult<Op> {
        let events = Arc::clone(self.events.get()?);
        start(async move { Ok(Plain(events.lock().await.next().await.as_ref().map(show::event))) })
    }
}
