//! The records of locks, for readers that do not hold them.

use crate::{Error, LockName, Locks, Operation, Record, RecordKind, Result};

impl Locks {
    /// Reads the record that a holder of this lock [has written](crate::LockGuard::write_record). It may be
    /// older than the last write. `None`: there is none.
    ///
    /// It says that its writer held the lock then, not that it holds it now.
    ///
    /// ```
    /// # use lockwell_core as lockwell;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
    /// let locks = lockwell::Locks::in_memory();
    /// let guard = locks.lock("import").await?;
    /// guard.write_record("up to line 42").await?;
    /// guard.release().await?;
    /// let record = locks.record("import").await?.expect("it was written");
    /// assert_eq!(record.value, b"up to line 42");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where [`records`](crate::Requirement::Records) is not
    /// promised.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn record<N: TryInto<LockName, Error: Into<Error>>>(&self, name: N) -> Result<Option<Record>> {
        let decorate = |error, name| self.book.decorate(error, Operation::ReadRecord, name);
        let name = name.try_into().map_err(|error| decorate(error.into(), None))?;
        self.capabilities().check_records().map_err(|error| decorate(error, Some(&name)))?;
        let read = self.book.backend.read_record(&name, RecordKind::Value, None).await;
        read.map_err(|error| decorate(error, Some(&name)))
    }
}
