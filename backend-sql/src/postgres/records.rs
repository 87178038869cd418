//! The records of locks on PostgreSQL.

use lockwell_core::backend::closed_for;
use lockwell_core::{Claim, ErrorKind, Grant, HoldId, LockName, Record, RecordKind};
use sqlx_core::from_row::FromRow;
use sqlx_postgres::PgRow;
use uuid::Uuid;

use super::bound::BoundStatement;
use super::database::make;
use super::driver::{Conn, Postgres};
use super::grace::{Closed, LOOKS};
use crate::dialect::error::ours;
use crate::dialect::records::{OwnedWrite, RecordRow, Records, record, writer};
use crate::ids::AsUuid;
use crate::words::Hold;

impl Records for Postgres {
    async fn create_records(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        make(self.sql.records.text(), conn).await
    }

    async fn write_record(
        &self,
        conn: &mut Conn,
        write: &OwnedWrite,
    ) -> sqlx_core::Result<Option<(HoldId, u64)>> {
        let claim = write.grant.claim();
        let written: Option<(Uuid, i64)> = self
            .unless_closed(conn, claim, || {
                let (hold, number, token, value) = write.columns();
                let statement = self.statement(&self.sql.write_record).of(claim).bind(write.kind.word());
                statement.bind(hold).bind(number).bind(token).bind(value).bind(write.held_token())
            })
            .await?;
        Ok(written.map(|(hold, number)| writer(hold, number)))
    }

    async fn read_record(
        &self,
        conn: &mut Conn,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> sqlx_core::Result<Option<Option<Record>>> {
        let statement = |sql| self.statement(sql).bind(name.as_str()).bind(kind.word());
        let Some(claim) = under.map(Grant::claim) else {
            let found: Option<RecordRow> = statement(&self.sql.read_record).row(conn).await?;
            return Ok(Some(found.and_then(record)));
        };
        let sql = self.sql.read_record_under.of(Hold::of(claim));
        let held = || statement(sql).bind(claim.owner().as_uuid());
        let found: Option<RecordRow> = self.unless_closed(conn, claim, held).await?;
        Ok(found.map(record))
    }

    async fn recorded(&self, conn: &mut Conn, kind: RecordKind) -> sqlx_core::Result<Vec<String>> {
        self.statement(&self.sql.recorded).bind(kind.word()).values(conn).await
    }

    async fn purge_records(&self, conn: &mut Conn) -> sqlx_core::Result<()> {
        self.statement(&self.sql.purge_records).execute(conn).await.map(drop)
    }
}

impl Postgres {
    /// Sends a statement that fails where the hold of a claim may have been forgotten.
    async fn unless_closed<'a, T>(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        statement: impl Fn() -> BoundStatement<'a>,
    ) -> sqlx_core::Result<Option<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let mut tries = 0..LOOKS;
        loop {
            let found = statement().row(&mut *conn).await;
            match self.closed(conn, &found, std::iter::once(claim)).await? {
                Some(Closed::For(left)) => return Err(ours(ErrorKind::GracePeriod, closed_for(left))),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return found,
            }
        }
    }
}
