//! The records of locks.

use lockwell_core::{
    Error, ErrorKind, Grant, LockName, Record, RecordKind, RecordWrite, Requirement, Result,
};

use crate::dialect::Dialect;
use crate::dialect::records::OwnedWrite;
use crate::dialect::requests::Route;
use crate::lock::{SqlLock, until_unblocked};

impl<D: Dialect> SqlLock<D> {
    /// The promise, if there is a table for records.
    pub(super) fn recording(&self) -> Option<Requirement> {
        self.0.dialect.hints().has_records().then_some(Requirement::Records)
    }

    /// Makes the table where it alone is missing: the other tables are those of an earlier version.
    pub(super) async fn set_up_records(&self) {
        if self.recording().is_some() || !self.0.options.create {
            return;
        }
        let created = async {
            let client = self.0.client()?;
            client.run(Route::Main, |dialect, conn| Box::pin(dialect.create_records(conn))).await?;
            self.check(false).await
        };
        if let Err(error) = created.await {
            tracing::info!(
                error = format!("{error:#}"),
                "there is no table for the records of locks, and it was not made; an administrator can run the \
                 statements that `lockwell schema` prints"
            );
        }
    }

    pub(super) async fn write(&self, grant: &Grant, write: RecordWrite<'_>) -> Result<()> {
        self.have_table()?;
        let (client, write) = (self.0.client()?, OwnedWrite::new(grant, write));
        // A renewal, or a check in a transaction that writes, may have the row at this moment.
        let written = until_unblocked(|route| {
            let write = write.clone();
            client.run(route, move |dialect, conn| {
                let write = write.clone();
                Box::pin(async move { dialect.write_record(conn, &write).await })
            })
        });
        write.as_write().answer(grant, written.await?)
    }

    pub(super) async fn read(
        &self,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> Result<Option<Record>> {
        self.have_table()?;
        let client = self.0.client()?;
        let read = until_unblocked(|route| {
            let (name, under) = (name.clone(), under.cloned());
            client.run(route, move |dialect, conn| {
                let (name, under) = (name.clone(), under.clone());
                Box::pin(async move { dialect.read_record(conn, &name, kind, under.as_ref()).await })
            })
        });
        let lost = || Error::new(ErrorKind::Lost, "the lock is not held any more");
        read.await?.ok_or_else(lost)
    }

    pub(super) async fn recorded(&self, kind: RecordKind) -> Result<Vec<LockName>> {
        self.have_table()?;
        let client = self.0.client()?;
        let names = client.run(Route::Main, move |dialect, conn| {
            Box::pin(async move { dialect.recorded(conn, kind).await })
        });
        Ok(names.await?.into_iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    fn have_table(&self) -> Result<()> {
        let missing = || Error::new(ErrorKind::Unsupported, "there is no table for the records of locks");
        self.recording().map(drop).ok_or_else(missing)
    }
}
