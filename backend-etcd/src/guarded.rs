//! Writes to etcd that the lock guards.

use std::fmt;

use lockwell_core::{Error, ErrorKind, Grant, Operation, Result};

use crate::BACKEND;
use crate::messages::{Compare, Delete, Op, Put, Txn, one};
use crate::waiter::Held;

/// One or more writes that are executed together, and only if the lock is still held when they arrive.
///
/// The transaction of the writes also checks the claim's key. So a holder that was paused, and has lost its
/// lock without noticing it, changes nothing.
#[must_use = "nothing is written before commit"]
pub struct GuardedWrite {
    held: Held,
    writes: Vec<Op>,
}

/// What the holder of a lock writes to etcd. A guard, a handle and a grant have it.
pub trait EtcdGuarded {
    /// Writes to etcd that are executed only if the lock is still held. etcd checks that in the same
    /// transaction. That is exclusion without any assumption about time.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if another backend granted the lock, and
    /// [`Lost`](ErrorKind::Lost) if its guard has passed it on to another task.
    fn guarded(&self) -> Result<GuardedWrite>;
}

impl<T: AsRef<Grant>> EtcdGuarded for T {
    fn guarded(&self) -> Result<GuardedWrite> {
        GuardedWrite::new(self.as_ref())
    }
}

impl GuardedWrite {
    fn new(grant: &Grant) -> Result<Self> {
        let held = grant
            .record::<Held>()
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "this grant was not made by this backend"));
        // The next task of this process would have the same key.
        let bound = held.and_then(|held| grant.bind().map(|()| held));
        let held = bound.map_err(|error| error.during(Operation::Verify).on_backend(BACKEND))?;
        Ok(Self { held: held.clone(), writes: Vec::new() })
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

    /// Executes the writes. They are sent once, so a commit that has succeeded leaves no copy behind that
    /// could overwrite a later one. Without any it only checks that the lock is held.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock is not held any more; then nothing was written.
    /// [`UnknownOutcome`](ErrorKind::UnknownOutcome) if there is no answer, or if etcd is full: the writes may
    /// be executed, also later, as long as the lock is held.
    ///
    /// # Cancel safety
    /// As if there were no answer.
    pub async fn commit(self) -> Result<()> {
        let is_held = Compare::created_at(one(&self.held.key), self.held.revision);
        // A member answers a request that reads and writes nothing by what it has itself, which may be old.
        // With this read it asks the majority, also if there are no writes.
        let otherwise = [Op::Range(one(&self.held.key))];
        let written = match self.held.inner.txn_once(Txn::new([is_held], self.writes, otherwise)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = "the lock is not held any more; nothing was written";
                Err(self.held.inner.named(Error::new(ErrorKind::Lost, text)))
            }
            Err(error) => Err(error),
        };
        written.map_err(|error| error.during(Operation::Verify))
    }
}

impl fmt::Debug for GuardedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedWrite").field("writes", &self.writes).finish_non_exhaustive()
    }
}
