//! Where operations report their ends: a queue of numbers, with a file descriptor that is readable while it
//! has any.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use lockwell::backend::lock;
use pyo3::prelude::*;

/// The side that native threads write to.
#[derive(Debug)]
pub(crate) struct Inbox {
    numbers: Mutex<Vec<u64>>,
    reader: UnixStream,
    writer: UnixStream,
}

impl Inbox {
    fn new() -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { numbers: Mutex::default(), reader, writer })
    }

    /// Adds a number, and wakes whoever waits for the file descriptor.
    pub(crate) fn post(&self, number: u64) {
        let mut numbers = lock(&self.numbers);
        numbers.push(number);
        // There is one byte in the pipe while there are numbers, so it is never full.
        if numbers.len() == 1 {
            while (&self.writer).write(&[1]).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
        }
    }

    fn take(&self) -> Vec<u64> {
        let mut numbers = lock(&self.numbers);
        if !numbers.is_empty() {
            while (&self.reader).read(&mut [0; 8]).is_err_and(|error| error.kind() == ErrorKind::Interrupted)
            {
            }
        }
        std::mem::take(&mut numbers)
    }
}

/// A queue of the ends of operations.
#[pyclass(frozen, module = "lockwell._native")]
pub(crate) struct Mailbox {
    pub(crate) inbox: Arc<Inbox>,
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self { inbox: Arc::new(Inbox::new()?) })
    }

    /// The file descriptor, which is readable while there are numbers.
    fn fileno(&self) -> i32 {
        self.inbox.reader.as_raw_fd()
    }

    /// All numbers that have arrived. It does not wait.
    fn take(&self) -> Vec<u64> {
        self.inbox.take()
    }
}
