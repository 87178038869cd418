//! The records of locks on MySQL and MariaDB.

use lockwell_core::{Grant, HoldId, LockName, Record, RecordKind};
use sqlx_core::row::Row;
use uuid::Uuid;

use super::call::send_whole;
use super::driver::{Conn, MySql};
use crate::dialect::records::{OwnedWrite, RecordRow, Records, record, writer};
use crate::ids::AsUuid;
use crate::words::Hold;

impl Records for MySql {
    async fn create_records(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        sqlx_core::query::query(self.sql.records.get()).execute(&mut conn.inner).await.map(drop)
    }

    async fn write_record(
        &self,
        conn: &mut Conn,
        write: &OwnedWrite,
    ) -> sqlx_core::Result<Option<(HoldId, u64)>> {
        let (hold, number, token, value) = write.columns();
        let call = self.sql.write_record.of(write.grant.claim()).bind(write.kind.word().as_bytes());
        let call = call.bind(hold).bind(number).bind(token).bind(value).bind(write.held_token());
        let answers = send_whole(&mut conn.inner, call.written()).await?;
        // The row of the lock, and that of the record.
        let [_, stored] = &answers.rows[..] else { return Ok(None) };
        let hold: Vec<u8> = stored.try_get_unchecked(0)?;
        let number: i64 = stored.try_get_unchecked(1)?;
        let hold = Uuid::from_slice(&hold).map_err(|error| sqlx_core::Error::Decode(error.into()))?;
        Ok(Some(writer(hold, number)))
    }

    async fn read_record(
        &self,
        conn: &mut Conn,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> sqlx_core::Result<Option<Option<Record>>> {
        let under = under.map(Grant::claim);
        let held = |claim| self.sql.read_record_under.of(Hold::of(claim));
        let mut call =
            under.map_or(&self.sql.read_record, held).call().bind(name).bind(kind.word().as_bytes());
        if let Some(claim) = under {
            call = call.bind(claim.owner().as_uuid());
        }
        let found: Option<RecordRow> = call.row(&mut conn.inner).await?;
        Ok(match found {
            Some(row) => Some(record(row)),
            None => under.is_none().then_some(None),
        })
    }

    async fn recorded(&self, conn: &mut Conn, kind: RecordKind) -> sqlx_core::Result<Vec<String>> {
        let call = self.sql.recorded.call().bind(kind.word().as_bytes());
        let names: Vec<Vec<u8>> = call.values(&mut conn.inner).await?;
        Ok(names.into_iter().filter_map(|name| String::from_utf8(name).ok()).collect())
    }

    async fn purge_records(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        self.sql.purge_records.call().execute(&mut conn.inner).await.map(drop)
    }
}
