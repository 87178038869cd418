//! The native part of the Python package `lockwell`. The package has the API; this has as little as possible:
//! clients, held locks, and operations under way.
//!
//! No thread of this library ever calls Python, or waits for its interpreter lock. An operation runs on a
//! native thread, and reports its end to a [`mailbox`]: a queue with a file descriptor, which Python waits
//! for in its own way: `poll`, an event loop, gevent. So no call from Python blocks here, each wait can be
//! interrupted, and renewals never depend on Python.

mod awaited;
mod background;
mod client;
mod config;
mod error;
mod guard;
mod hold;
mod log;
mod mailbox;
mod observer;
mod once;
mod op;
mod options;
mod owned;
mod owner;
mod runtime;
mod shielded;
mod show;
mod testing;
mod words;

#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use super::background::released;
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::error::kinds;
    #[pymodule_export]
    use super::guard::Guard;
    #[pymodule_export]
    use super::log::{set_log_level, take_log};
    #[pymodule_export]
    use super::mailbox::Mailbox;
    #[pymodule_export]
    use super::observer::{Events, Observer};
    #[pymodule_export]
    use super::once::Attempt;
    #[pymodule_export]
    use super::op::Op;
    #[pymodule_export]
    use super::owned::note_fork;
    #[pymodule_export]
    use super::owner::Owner;
    #[pymodule_export]
    use super::shielded::shielded;
    #[pymodule_export]
    use super::testing::TestServer;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // There are no other threads of the library now.
        lockwell::backend::make_ready();
        lockwell::backend::tls::choose_provider();
        super::log::install();
        // The same for the names of options, which pyo3 makes objects at their first use: other threads run meanwhile.
        let least = PyDict::new(module.py());
        least.set_item("wait_forever", false)?;
        least.set_item("server_order", false)?;
        least.extract::<super::options::Options>()?;
        least.extract::<super::config::Settings>()?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
