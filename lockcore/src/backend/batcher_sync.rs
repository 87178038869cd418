//! Locks, flags and tasks of the batcher. The package `models` compiles the batcher with those of `loom`
//! instead, which tries all orders of its threads.
//!
//! `Arc` is always that of the standard library: its counters order nothing here, and would multiply the
//! orders. So are `sent` and `retry` of an entry, whose orders are not tried.

use tokio::runtime::Handle;

pub(super) use crate::system::lock;
pub(super) use std::sync::{Mutex, atomic::AtomicBool};

/// Gives this to a task of the runtime, or of the present one.
pub(super) fn spawn(runtime: Option<&Handle>, task: impl Future<Output = ()> + Send + 'static) {
    match runtime {
        Some(runtime) => drop(runtime.spawn(task)),
        None => drop(tokio::spawn(task)),
    }
}

/// Whether the present runtime is this one.
pub(super) fn is_present(runtime: Option<&Handle>) -> bool {
    match (runtime, Handle::try_current()) {
        (Some(home), Ok(here)) => home.id() == here.id(),
        _ => false,
    }
}
