//! The records of locks on SQLite.

use lockwell_core::{Grant, HoldId, LockName, Record, RecordKind};
use sqlx_core::row::Row;

use super::connection::Connection;
use super::driver::Sqlite;
use crate::dialect::records::{OwnedWrite, RecordRow, Records, record, writer};
use crate::ids::AsUuid;

impl Records for Sqlite {
    async fn create_records(&self, conn: &mut Connection) -> sqlx_core::Result<()> {
        sqlx_core::query::query(self.sql.records.get()).execute(conn.get()).await.map(drop)
    }

    async fn write_record(
        &self,
        conn: &mut Connection,
        write: &OwnedWrite,
    ) -> sqlx_core::Result<Option<(HoldId, u64)>> {
        self.check_disk(conn).await?;
        let claim = write.grant.claim();
        let (hold, number, token, value) = write.columns();
        let written = conn.write(&self.sql.write_record, |query| {
            let query = query.bind(claim.name().as_str()).bind(claim.owner().as_uuid());
            let query = query.bind(write.kind.word()).bind(hold).bind(number).bind(token);
            query.bind(value).bind(write.held_token())
        });
        match written.await?.rows.first() {
            Some(stored) => Ok(Some(writer(stored.try_get(0)?, stored.try_get(1)?))),
            None => Ok(None),
        }
    }

    /// All who use the file read what was written.
    async fn read_record(
        &self,
        conn: &mut Connection,
        name: &LockName,
        kind: RecordKind,
        _: Option<&Grant>,
    ) -> sqlx_core::Result<Option<Option<Record>>> {
        let read =
            sqlx_core::query_as::query_as(self.sql.read_record.get()).bind(name.as_str()).bind(kind.word());
        let row: Option<RecordRow> = read.fetch_optional(conn.get()).await?;
        Ok(Some(row.and_then(record)))
    }

    async fn recorded(&self, conn: &mut Connection, kind: RecordKind) -> sqlx_core::Result<Vec<String>> {
        sqlx_core::query_scalar::query_scalar(self.sql.recorded.get())
            .bind(kind.word())
            .fetch_all(conn.get())
            .await
    }

    async fn purge_records(&self, conn: &mut Connection) -> sqlx_core::Result<()> {
        conn.write(&self.sql.purge_records, |query| query).await.map(drop)
    }
}
