//! The lock server for tests of applications.

use std::time::Duration;

use lockwell::testing;
use pyo3::prelude::*;

use crate::client::Client;
use crate::error::raise;
use crate::op::{Op, Plain, start};
use crate::options::seconds;
use crate::owned::Owned;
use crate::words::{kind, operation};

/// A lock server in memory, whose faults and clock a test controls.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct TestServer {
    server: Owned<testing::TestServer>,
}

#[pymethods]
impl TestServer {
    #[new]
    fn new() -> Self {
        Self { server: Owned::new(testing::TestServer::new()) }
    }

    fn client(&self) -> PyResult<Client> {
        self.server.get()?.locks().map(Client::new).map_err(raise)
    }

    fn advance(&self, span: f64) -> PyResult<()> {
        self.server.get()?.advance(seconds("the step", span).map_err(raise)?);
        Ok(())
    }

    /// The operation fails from now on, or this number of times.
    fn fail(&self, failing: &str, error: &str, times: Option<u32>) -> PyResult<()> {
        let (server, failing, error) = (self.server.get()?, operation(failing)?, kind(error)?);
        match times {
            Some(times) => server.fail_times(failing, error, times),
            None => server.fail(failing, error),
        }
        Ok(())
    }

    /// All operations fail from now on.
    fn fail_all(&self, error: &str) -> PyResult<()> {
        self.server.get()?.fail_all(kind(error)?);
        Ok(())
    }

    /// The processes that hold this lock end without a word; returns their number.
    fn crash(&self, name: &str) -> PyResult<usize> {
        self.server.get()?.crash(name).map_err(raise)
    }

    /// The operation takes this long from now on; without a time it has no end.
    fn delay(&self, delayed: &str, span: Option<f64>) -> PyResult<()> {
        let span = span.map_or(Ok(Duration::MAX), |span| seconds("the delay", span)).map_err(raise)?;
        self.server.get()?.delay(operation(delayed)?, span);
        Ok(())
    }

    fn heal(&self) -> PyResult<()> {
        self.server.get()?.heal();
        Ok(())
    }

    /// Takes a lock from its holders.
    fn lose(&self, name: String) -> PyResult<Op> {
        let server = self.server.get()?.clone();
        start(async move { server.lose(name).await.map(Plain) })
    }
}
