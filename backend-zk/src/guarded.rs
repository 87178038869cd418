//! Writes to ZooKeeper that the lock guards.

use std::fmt;
use std::time::Duration;

use lockwell_core::{Error, ErrorKind, Grant, Operation, Result};
use zookeeper_client::{Acls, CheckWriteError, Client, CreateMode};

use crate::error::{ErrorClass, class_of, explain};
use crate::queue::node::Node;

/// One or more writes that are executed together, and only if the lock is still held when they arrive.
///
/// The transaction of the writes also checks the claim's node. So a holder that was paused, and has lost its
/// lock without noticing it, changes nothing.
#[must_use = "nothing is written before commit"]
pub struct GuardedWrite {
    client: Client,
    lock: String,
    acls: Acls<'static>,
    timeout: Duration,
    writes: Vec<Write>,
}

#[derive(Debug)]
enum Write {
    Set(String, Vec<u8>, Option<i32>),
    Create(String, Vec<u8>),
    Delete(String, Option<i32>),
}

/// What the holder of a lock writes to ZooKeeper. A guard, a handle and a grant have it.
pub trait ZkGuarded {
    /// Writes to ZooKeeper that are executed only if the lock is still held. The servers check that in the same
    /// transaction. That is exclusion without any assumption about time.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if another backend granted the lock, and
    /// [`Lost`](ErrorKind::Lost) if its guard has passed it on to another task.
    fn guarded(&self) -> Result<GuardedWrite>;
}

impl<T: AsRef<Grant>> ZkGuarded for T {
    fn guarded(&self) -> Result<GuardedWrite> {
        GuardedWrite::new(self.as_ref())
    }
}

impl GuardedWrite {
    fn new(grant: &Grant) -> Result<Self> {
        let node = grant
            .record::<Node>()
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "this grant was not made by this backend"));
        // The next task of this process would have the same node.
        let bound = node.and_then(|node| grant.bind().map(|()| node));
        let node = bound.map_err(|error| error.during(Operation::Verify))?;
        Ok(Self {
            client: node.session.client.clone(),
            lock: node.path.clone(),
            acls: node.session.options.acls(),
            timeout: node.session.timeout(),
            writes: Vec::new(),
        })
    }

    /// Writes the data of a node, if it has this version or any.
    pub fn set(mut self, path: &str, data: &[u8], version: Option<i32>) -> Self {
        self.writes.push(Write::Set(path.to_owned(), data.to_vec(), version));
        self
    }

    /// Creates a persistent node, with the ACL that the address chooses for the nodes of locks (`acl`).
    pub fn create(mut self, path: &str, data: &[u8]) -> Self {
        self.writes.push(Write::Create(path.to_owned(), data.to_vec()));
        self
    }

    /// Deletes a node, if it has this version or any.
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Self {
        self.writes.push(Write::Delete(path.to_owned(), version));
        self
    }

    /// Executes the writes. Fails with [`Lost`](ErrorKind::Lost) if the lock is not held any more; then
    /// nothing was written.
    ///
    /// # Cancel safety
    /// The writes may be executed even if this future is dropped.
    pub async fn commit(self) -> Result<()> {
        self.send().await.map_err(|error| error.during(Operation::Verify).on_backend("zookeeper"))
    }

    async fn send(&self) -> Result<()> {
        // Any version: the node's name contains the owner id and a unique number, so a node with this name is
        // the claim's node.
        let mut writer = self.client.new_check_writer(&self.lock, None).map_err(|error| explain(&error))?;
        for write in &self.writes {
            let added = match write {
                Write::Set(path, data, version) => writer.add_set_data(path, data, *version),
                Write::Create(path, data) => {
                    writer.add_create(path, data, &CreateMode::Persistent.with_acls(self.acls))
                }
                Write::Delete(path, version) => writer.add_delete(path, *version),
            };
            added.map_err(|error| {
                Error::new(ErrorKind::InvalidInput, "a write is not acceptable")
                    .with_source(error.to_string())
            })?;
        }
        match tokio::time::timeout(self.timeout, writer.commit()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CheckWriteError::CheckFailed { .. })) => {
                Err(Error::new(ErrorKind::Lost, "the lock is not held any more; nothing was written"))
            }
            Ok(Err(CheckWriteError::OperationFailed { index, source })) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("write {index} is refused, and so nothing was written"),
            )
            .with_source(source.to_string())),
            Ok(Err(CheckWriteError::RequestFailed { source })) => Err(match class_of(&source) {
                ErrorClass::SessionOver => {
                    Error::new(ErrorKind::Lost, "the session is over, and with it the lock")
                }
                ErrorClass::Refused | ErrorClass::Throttled => explain(&source),
                ErrorClass::Unknown => unknown(),
            }),
            Err(_) => Err(unknown()),
        }
    }
}

impl fmt::Debug for GuardedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name of the node in this folder contains the owner id.
        f.debug_struct("GuardedWrite")
            .field("lock", &self.lock.rsplit_once('/').map(|(folder, _)| folder))
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::UnknownOutcome, "no answer: the writes may or may not have been done")
}
