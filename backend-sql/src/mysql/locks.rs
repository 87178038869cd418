//! What MySQL is asked about locks that one holds alone, and about the queue.

use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters};
use lockcore::{Claim, Grant, LockName, LockStatus};
use uuid::Uuid;

use super::batches::{begin, end};
use super::rows::Rows;
use super::{Conn, MySql};
use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, HolderRow, Took, micros, status};
use crate::groups::Groups;

impl MySql {
    /// Answers with how many held the lock.
    async fn force(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<usize> {
        let bytes = name.as_str().as_bytes();
        let mode: Option<i64> =
            sqlx::query_scalar(self.sql.held.get()).bind(bytes).fetch_optional(&mut conn.inner).await?;
        let Some(mode) = mode else { return Ok(0) };
        let mut holders = 1;
        if mode != 0 {
            let alive: i64 =
                sqlx::query_scalar(self.sql.alive.get()).bind(bytes).fetch_one(&mut conn.inner).await?;
            holders = usize::try_from(alive).unwrap_or(0);
            sqlx::query(self.sql.force_members.get()).bind(bytes).execute(&mut conn.inner).await?;
        }
        sqlx::query(self.sql.force.get())
            .bind(Uuid::from_u128(rand::random()))
            .bind(bytes)
            .execute(&mut conn.inner)
            .await?;
        Ok(holders)
    }
}

impl Dialect for MySql {
    async fn take(&self, conn: &mut Conn, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let [ask] = asks else { return self.take_by_reading(conn, asks).await };
        let name = ask.claim.name();
        if !self.contended.holds(name) {
            match self.take_row(conn, ask).await {
                Ok(Some(granted)) => return Ok(vec![granted]),
                Ok(None) => (),
                Err(error) => {
                    self.contended.note(name);
                    return Err(error);
                }
            }
        }
        let took = self.take_new_or_contended(conn, ask).await?;
        if !matches!(took, Took::Granted(_)) {
            self.contended.note(name);
        }
        Ok(vec![took])
    }

    async fn release(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let released = match claims {
            [claim] => vec![self.release_one(conn, claim).await?],
            many => self.release_many(conn, many).await?,
        };
        self.freed(conn, claims, &released, waiters).await
    }

    async fn renew(&self, conn: &mut Conn, hold: Hold, grants: &[Grant]) -> sqlx::Result<Vec<Extension>> {
        self.renew_unlocked(conn, hold, grants).await
    }

    async fn enroll(&self, conn: &mut Conn, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let done = sqlx::query(self.sql.enroll.get())
            .bind(claim.name().as_str().as_bytes())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(PLACE_TTL))
            .bind(claim.label())
            .bind(claim.mode().code())
            .execute(&mut conn.inner)
            .await?;
        Ok(done.last_insert_id().cast_signed())
    }

    async fn stay(&self, conn: &mut Conn, tickets: &[i64]) -> sqlx::Result<Vec<i64>> {
        let mut alive = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            let done = sqlx::query(self.sql.stay.get())
                .bind(micros(PLACE_TTL))
                .bind(ticket)
                .execute(&mut conn.inner)
                .await?;
            if done.rows_affected() > 0 {
                alive.push(*ticket);
            }
        }
        Ok(alive)
    }

    async fn tidy(&self, conn: &mut Conn, tickets: &[i64]) -> sqlx::Result<()> {
        for ticket in tickets {
            sqlx::query(self.sql.tidy.get()).bind(ticket).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    async fn leave(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let leave = sqlx::query(self.sql.leave.get()).bind(claim.owner().as_uuid());
        Ok(leave.execute(&mut conn.inner).await?.rows_affected() > 0)
    }

    async fn turns(&self, conn: &mut Conn, waiters: &Waiters, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let mut names: Vec<&LockName> = names.iter().collect();
        names.sort_unstable();
        let heads: Vec<(i64, Option<i64>)> = sqlx::query_as(self.sql.turns.get())
            .bind(waiters.client())
            .bind(Rows::of_names(names.iter().copied())?.json())
            .fetch_all(&mut conn.inner)
            .await?;
        let mut turns = Vec::new();
        for (n, head) in heads {
            if let Some(name) = usize::try_from(n - 1).ok().and_then(|at| names.get(at)) {
                turns.extend(self.behind(conn, name, head, waiters).await?);
            }
        }
        Ok(turns)
    }

    async fn inspect(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<LockStatus> {
        let bytes = name.as_str().as_bytes();
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(bytes).bind(bytes).fetch_all(&mut conn.inner).await?;
        let waiters: i64 = sqlx::query_scalar(self.sql.waiters.get())
            .bind(bytes)
            .bind(bytes)
            .fetch_one(&mut conn.inner)
            .await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<usize> {
        begin(conn).await?;
        let freed = self.force(conn, name).await;
        end(conn, freed).await
    }

    async fn purge(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<u64> {
        sqlx::query(self.sql.purge_queue.get()).execute(&mut conn.inner).await?;
        let purge = sqlx::query(self.sql.purge.get()).bind(micros(idle)).bind(micros(idle));
        Ok(purge.execute(&mut conn.inner).await?.rows_affected())
    }
}
