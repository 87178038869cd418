//! Values of the process that made them.

use std::process;

use pyo3::PyResult;

use crate::error::forked;

/// A value of one process.
///
/// A forked child has a copy of it, but not the threads that it is for. The child can neither use it nor drop
/// it: a guard that the child's garbage collector dropped would release the lock of the parent.
pub(crate) struct Owned<T> {
    process: u32,
    /// Taken by `drop` alone.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value, or `ForkedError` in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(forked)
    }

    /// The value, unless this is another process.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == process::id())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
