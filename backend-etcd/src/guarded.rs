//! Writes to etcd that the lock guards.

use std::fmt;
use std::sync::Arc;

use lockwell_core::{Error, ErrorKind, Grant, Operation, Result};

use crate::BACKEND;
use crate::client::ClientInner;
use crate::messages::{Compare, Delete, Op, Put, Txn};
use crate::waiter::Held;

/// One or more writes that are executed together, and only if the lock is still held when they arrive.
///
/// The transaction of the writes also checks the claim's key. So a holder that was paused, and has lost its
/// lock without noticing it, changes nothing.
#[must_use = "nothing is written before commit"]
pub struct GuardedWrite {
    inner: Arc<ClientInner>,
    held: Held,
    writes: Vec<Op>,
}

impl GuardedWrite {
    pub(crate) fn new(inner: &Arc<ClientInner>, grant: &Grant) -> Result<Self> {
        let held = grant.record::<Held>().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "this grant was not made by this backend")
                .during(Operation::Verify)
                .on_backend(BACKEND)
        })?;
        Ok(Self { inner: Arc::clone(inner), held: held.clone(), writes: Vec::new() })
    }

    /// Writes a key. It belongs to no lease.
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Op::Put(Put { key: key.into(), value: value.into(), lease: 0 }));
        self
    }

    /// Deletes a key, if it is there.
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Op::Delete(Delete { key: key.into() }));
        self
    }

    /// Executes the writes. Fails with [`Lost`](ErrorKind::Lost) if the lock is not held any more; then
    /// nothing was written.
    ///
    /// # Cancel safety
    /// The writes may be executed even if this future is dropped.
    pub async fn commit(self) -> Result<()> {
        let during = |error: Error| error.during(Operation::Verify);
        let is_held = Compare::created_at(&self.held.key, self.held.revision);
        match self.inner.txn(None, &Txn::new([is_held], self.writes, [])).await {
            Ok(answer) if answer.succeeded => Ok(()),
            Ok(_) => {
                let text = "the lock is not held any more; nothing was written";
                Err(during(self.inner.named(Error::new(ErrorKind::Lost, text))))
            }
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                let text = "no answer: the writes may or may not have been done";
                let error = Error::new(ErrorKind::UnknownOutcome, text).with_source(error);
                Err(during(self.inner.named(error)))
            }
            Err(error) => Err(during(error)),
        }
    }
}

impl fmt::Debug for GuardedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedWrite").field("writes", &self.writes).finish_non_exhaustive()
    }
}
