//! The requests about exclusive locks and about the queue on MySQL.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters};
use lockcore::{Claim, Grant, LockName, LockStatus};
use uuid::Uuid;

use super::batches::{begin, end};
use super::rows::Rows;
use super::{Conn, MySql};
use crate::dialect::{
    Dialect, Extension, Freed, Hold, HolderRow, TakeRequest, TryAcquire, WaitersRow, micros, status,
};
use crate::groups::Groups;
use crate::purge::{PORTION, Portion};

impl MySql {
    /// Frees a lock. Returns the number of holders.
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

impl MySql {
    /// The waiters whose turn it is at each of these locks. If the locks have just been freed, the waiters of other processes
    /// are notified.
    async fn turns_at(
        &self,
        conn: &mut Conn,
        waiters: &Waiters,
        mut names: Vec<&LockName>,
        freed: bool,
    ) -> sqlx::Result<BTreeMap<LockName, Vec<i64>>> {
        let mut turns = BTreeMap::new();
        if names.is_empty() {
            return Ok(turns);
        }
        names.sort_unstable();
        let heads: Vec<(i64, Option<i64>, Option<Uuid>)> = sqlx::query_as(self.sql.turns.get())
            .bind(waiters.client())
            .bind(waiters.client())
            .bind(Rows::of_names(names.iter().copied())?.json())
            .fetch_all(&mut conn.inner)
            .await?;
        let others: BTreeSet<Uuid> =
            heads.iter().filter_map(|(_, _, other)| other.filter(|_| freed)).collect();
        self.wake(conn, others);
        for (n, head, _) in heads {
            if let Some(name) = usize::try_from(n - 1).ok().and_then(|at| names.get(at)) {
                turns.insert((*name).clone(), self.behind(conn, name, head, waiters).await?);
            }
        }
        Ok(turns)
    }
}

impl Dialect for MySql {
    async fn take(&self, conn: &mut Conn, requests: &[TakeRequest]) -> sqlx::Result<Vec<TryAcquire>> {
        match requests {
            [request] => Ok(vec![self.take_one(conn, request).await?]),
            many => self.take_many(conn, many).await,
        }
    }

    async fn release(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            let (released, awaited) = self.release_one(conn, claim).await?;
            let next = if awaited { self.next(conn, claim.name(), waiters).await? } else { Vec::new() };
            return Ok(vec![Freed::new(released, next)]);
        }
        let released = self.release_many(conn, claims).await?;
        let names = claims.iter().zip(&released).filter(|(_, released)| **released);
        let mut next =
            self.turns_at(conn, waiters, names.map(|(claim, _)| claim.name()).collect(), true).await?;
        let freed = |(claim, &released): (&Claim, &bool)| {
            Freed::new(released, next.remove(claim.name()).unwrap_or_default())
        };
        Ok(claims.iter().zip(&released).map(freed).collect())
    }

    async fn renew(&self, conn: &mut Conn, hold: Hold, grants: &[Grant]) -> sqlx::Result<Vec<Extension>> {
        self.renew_unlocked(conn, hold, grants).await
    }

    async fn enqueue(&self, conn: &mut Conn, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let done = sqlx::query(self.sql.enqueue.get())
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

    async fn keep(&self, conn: &mut Conn, places: &[(i64, Uuid)]) -> sqlx::Result<Vec<bool>> {
        let mut kept = Vec::with_capacity(places.len());
        for (ticket, _) in places {
            let done = sqlx::query(self.sql.keep_place.get())
                .bind(micros(PLACE_TTL))
                .bind(ticket)
                .execute(&mut conn.inner)
                .await?;
            kept.push(done.rows_affected() > 0);
        }
        Ok(kept)
    }

    async fn forget_places(&self, conn: &mut Conn, tickets: &[i64]) -> sqlx::Result<()> {
        for ticket in tickets {
            sqlx::query(self.sql.forget_place.get()).bind(ticket).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    async fn leave(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let leave = sqlx::query(self.sql.leave.get()).bind(claim.owner().as_uuid());
        Ok(leave.execute(&mut conn.inner).await?.rows_affected() > 0)
    }

    async fn turns(&self, conn: &mut Conn, waiters: &Waiters, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let turns = self.turns_at(conn, waiters, names.iter().collect(), false).await?;
        Ok(turns.into_values().flatten().collect())
    }

    async fn inspect(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<LockStatus> {
        let bytes = name.as_str().as_bytes();
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(bytes).bind(bytes).fetch_all(&mut conn.inner).await?;
        let waiters: WaitersRow =
            sqlx::query_as(self.sql.waiters.get()).bind(bytes).bind(bytes).fetch_one(&mut conn.inner).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<usize> {
        begin(conn).await?;
        let freed = self.force(conn, name).await;
        end(conn, freed).await
    }

    async fn purge(&self, conn: &mut Conn, idle: Duration, after: &str) -> sqlx::Result<Portion> {
        if after.is_empty() {
            for sql in &self.sql.purge_queue {
                sqlx::query(sql.get()).execute(&mut conn.inner).await?;
            }
        }
        let last = sqlx::query_scalar(self.sql.portion.get()).bind(after.as_bytes()).bind(PORTION);
        let Some(last): Option<Vec<u8>> = last.fetch_one(&mut conn.inner).await? else {
            return Ok(Portion::default());
        };
        let purge = sqlx::query(self.sql.purge.get()).bind(after.as_bytes()).bind(last.as_slice());
        let gone =
            purge.bind(micros(idle)).bind(micros(idle)).execute(&mut conn.inner).await?.rows_affected();
        let last = String::from_utf8(last).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Portion { gone, last: Some(last) })
    }
}
