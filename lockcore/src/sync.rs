//! Locks that do not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data is valid after every statement, so that a panic elsewhere need not spread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
