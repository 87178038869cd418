//! The records of locks on PostgreSQL.

use lockwell_core::backend::closed_for;
use lockwell_core::{ErrorKind, Grant, HoldId, LockName, Record, RecordKind};
use uuid::Uuid;

use super::database::make;
use super::driver::{Conn, Postgres};
use super::grace::{Closed, LOOKS};
use crate::dialect::error::ours;
use crate::dialect::records::{OwnedWrite, RecordRow, Records, record, writer};
use crate::ids::AsUuid;

impl Records for Postgres {
    async fn create_records(&self, conn: &mut Conn) -> sqlx::Result<()> {
        make(self.sql.records.text(), conn).await
    }

    async fn write_record(&self, conn: &mut Conn, write: &OwnedWrite) -> sqlx::Result<Option<(HoldId, u64)>> {
        let claim = write.grant.claim();
        let mut tries = 0..LOOKS;
        loop {
            let (hold, number, token, value) = write.columns();
            let statement = self.statement(&self.sql.write_record).of(claim).bind(write.kind.word());
            let statement = statement.bind(hold).bind(number).bind(token).bind(value);
            let written: sqlx::Result<Option<(Uuid, i64)>> = statement.row(&mut *conn).await;
            match self.closed(conn, &written, std::iter::once(claim)).await? {
                Some(Closed::For(left)) => return Err(ours(ErrorKind::GracePeriod, closed_for(left))),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return Ok(written?.map(|(hold, number)| writer(hold, number))),
            }
        }
    }

    async fn read_record(
        &self,
        conn: &mut Conn,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> sqlx::Result<Option<Option<Record>>> {
        let sql = if under.is_some() { &self.sql.read_record_under } else { &self.sql.read_record };
        let mut statement = self.statement(sql).bind(name.as_str()).bind(kind.word());
        if let Some(grant) = under {
            statement = statement.bind(grant.claim().owner().as_uuid());
        }
        let found: Option<RecordRow> = statement.row(conn).await?;
        Ok(match found {
            Some(row) => Some(record(row)),
            None => under.is_none().then_some(None),
        })
    }

    async fn recorded(&self, conn: &mut Conn, kind: RecordKind) -> sqlx::Result<Vec<String>> {
        self.statement(&self.sql.recorded).bind(kind.word()).values(conn).await
    }

    async fn purge_records(&self, conn: &mut Conn) -> sqlx::Result<()> {
        self.statement(&self.sql.purge_records).execute(conn).await.map(drop)
    }
}
