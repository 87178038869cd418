//! The batcher of lockwell-core, compiled a second time: with locks and threads of `loom` instead of those of
//! the standard library and of tokio. `tests/batcher.rs` tries all orders of its threads.
//!
//! The other models in `tests` search the states of the protocols.
//!
//! A package of its own: so only the models are optimised, and nothing else is compiled anew for them.

// What the batcher imports from the root of its crate.
use lockwell_core::{Clock, Error, ErrorKind, Moment, Result};

mod system {
    pub(crate) use lockwell_core::backend::{lock, wake_tasks};
}

/// As in lockwell-core.
pub mod backend {
    #[allow(dead_code)] // The unit tests of lockwell-core use the rest.
    #[path = "../../../../lockcore/src/backend/batcher/mod.rs"]
    pub mod batcher;
    mod batcher_sync;

    pub use batcher_sync::lock;
    pub(crate) use lockwell_core::backend::Backoff;
}
