//! Values of the process that made them.

use lockwell::backend::Process;
use pyo3::prelude::*;

use crate::error::forked;

/// This process is a forked child.
#[pyfunction]
pub(crate) fn note_fork() {
    lockwell::backend::note_fork();
}

/// A value of one process.
///
/// A forked child has a copy of it, but not the threads that it is for. The child can neither use it nor drop
/// it: a guard that the child's garbage collector dropped would release the lock of the parent.
pub(crate) struct Owned<T> {
    process: Process,
    /// Taken by `drop` alone.
    value: Option<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: Process::this(), value: Some(value) }
    }

    /// The value, or `ForkedError` in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(forked)
    }

    /// The value, unless this is another process.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == Process::this())
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != Process::this() {
            std::mem::forget(self.value.take());
        }
    }
}
