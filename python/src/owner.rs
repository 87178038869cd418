//! An owner of re-entrant locks.

use std::future::IntoFuture as _;

use lockwell::request;
use pyo3::prelude::*;

use crate::error::raise;
use crate::guard::Taken;
use crate::hold::Hold;
use crate::op::{Op, start};
use crate::options::{Options, permits};
use crate::owned::Owned;

/// An owner of re-entrant locks.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Owner {
    owner: Owned<request::Owner>,
}

impl Owner {
    pub(crate) fn new(owner: request::Owner) -> Self {
        Self { owner: Owned::new(owner) }
    }
}

#[pymethods]
impl Owner {
    /// Takes a lock, waiting or not. `limit` is the number of permits.
    fn acquire(
        &self,
        kind: &str,
        name: &str,
        #[pyo3(from_py_with = permits)] limit: u32,
        options: Options,
        now: bool,
        through_grace: bool,
    ) -> PyResult<Op> {
        let owner = self.owner.get()?;
        let request = match kind {
            "shared" => owner.read(name),
            "permit" => owner.permit(name, limit),
            _ => owner.lock(name),
        };
        let request = options.apply(request, through_grace).map_err(raise)?;
        start(async move {
            let guard = if now { request.try_now().await? } else { Some(request.into_future().await?) };
            Ok(Taken::new(guard.map(Hold::Shared)))
        })
    }
}
