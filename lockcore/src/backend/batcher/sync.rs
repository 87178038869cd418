//! Locks and flags of the batcher: those of the standard library, or those of `loom` where it tries all
//! orders of threads.
//!
//! `Arc` is always that of the standard library: its counters order nothing here, and would multiply the
//! orders. So are `sent` and `retry` of an entry, whose orders are not tried.

#[cfg(not(all(test, lockwell_loom)))]
pub(super) use crate::system::lock;
#[cfg(not(all(test, lockwell_loom)))]
pub(super) use std::sync::{Mutex, atomic::AtomicBool};

#[cfg(all(test, lockwell_loom))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicBool};

/// As [`crate::system::lock`].
#[cfg(all(test, lockwell_loom))]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
