//! What SQLite is asked about locks that one holds alone, and about the queue.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters};
use lockcore::{Claim, Grant, LockName, LockStatus};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::connection::Connection;
use super::{Sqlite, begin, end, json};
use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, HolderRow, Took, block, micros, status, token};
use crate::groups::Groups;

/// How many rows a statement of a purge looks at: all other writers of the file, and of the application, wait meanwhile.
const PORTION: i64 = 500;

impl Sqlite {
    async fn take_one(&self, conn: &mut Connection, ask: &Ask) -> sqlx::Result<Took> {
        let claim = &ask.claim;
        // To the end, not to the first row: only a statement that runs to its end lets SQLite move its log into the
        // database file. Otherwise the log grows without bound, and each commit gets slower.
        let rows: Vec<SqliteRow> = sqlx::query(conn.synced_by(&self.sql.take))
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(micros(claim.ttl()))
            .bind(claim.label())
            .bind(ask.ticket)
            .bind(block(claim))
            .fetch_all(conn.get())
            .await?;
        conn.is_synced();
        match rows.as_slice() {
            [row] => Ok(Took::Granted(token(row.try_get(0)?))),
            _ => self.refused(conn.get(), ask).await,
        }
    }

    pub(super) async fn refused(&self, conn: &mut SqliteConnection, ask: &Ask) -> sqlx::Result<Took> {
        let (in_use, left) = sqlx::query_as(self.sql.standing.get())
            .bind(ask.claim.name().as_str())
            .bind(ask.ticket)
            .fetch_one(conn)
            .await?;
        Ok(Took::refused(ask, in_use, left))
    }

    async fn release_each(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut released = Vec::with_capacity(claims.len());
        for claim in claims {
            let rows: Vec<i64> = sqlx::query_scalar(conn.written_by(&self.sql.release))
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .fetch_all(conn.get())
                .await?;
            conn.is_written();
            released.push(!rows.is_empty());
        }
        self.freed(conn, claims, &released, waiters).await
    }

    async fn take_each(&self, conn: &mut Connection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(self.take_one(&mut *conn, ask).await?);
        }
        Ok(answers)
    }

    /// Answers with how many held the lock.
    async fn force(&self, conn: &mut SqliteConnection, name: &LockName) -> sqlx::Result<usize> {
        let mode: Option<i64> =
            sqlx::query_scalar(self.sql.held.get()).bind(name.as_str()).fetch_optional(&mut *conn).await?;
        let Some(mode) = mode else { return Ok(0) };
        sqlx::query(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
            .execute(&mut *conn)
            .await?;
        if mode == 0 {
            return Ok(1);
        }
        let alive: Vec<bool> =
            sqlx::query_scalar(self.sql.force_members.get()).bind(name.as_str()).fetch_all(conn).await?;
        Ok(alive.into_iter().filter(|alive| *alive).count())
    }
}

impl Dialect for Sqlite {
    async fn take(&self, conn: &mut Connection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if asks.len() == 1 {
            return self.take_each(conn, asks).await;
        }
        begin(conn.synced().await?).await?;
        let answers = self.take_each(conn, asks).await;
        end(conn.get(), answers).await
    }

    // What is released and granted to the next at once, is a grant: then this must be `synced`.
    async fn release(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        if claims.len() == 1 {
            return self.release_each(conn, claims, waiters).await;
        }
        begin(conn.written().await?).await?;
        let answers = self.release_each(conn, claims, waiters).await;
        end(conn.get(), answers).await
    }

    async fn renew(
        &self,
        conn: &mut Connection,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
        let conn = conn.synced().await?;
        let rows: Vec<_> = grants
            .iter()
            .map(|grant| {
                let claim = grant.claim();
                let owner = claim.owner().as_uuid().simple().to_string();
                (claim.name().as_str(), owner, micros(claim.ttl()))
            })
            .collect();
        let renew = self.sql.renew.of(hold).get();
        let renewed: Vec<Uuid> = sqlx::query_scalar(renew).bind(json(&rows)?).fetch_all(conn).await?;
        let renewed: HashSet<Uuid> = renewed.into_iter().collect();
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut Connection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let conn = conn.written().await?;
        let tickets: Vec<i64> = sqlx::query_scalar(self.sql.enroll.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(PLACE_TTL))
            .bind(claim.label())
            .bind(claim.mode().code())
            .fetch_all(conn)
            .await?;
        tickets.first().copied().ok_or(sqlx::Error::RowNotFound)
    }

    async fn keep(&self, conn: &mut Connection, places: &[(i64, Uuid)]) -> sqlx::Result<Vec<bool>> {
        let conn = conn.written().await?;
        let tickets: Vec<_> = places.iter().map(|(ticket, _)| *ticket).collect();
        let kept: Vec<i64> = sqlx::query_scalar(self.sql.stay.get())
            .bind(json(&tickets)?)
            .bind(micros(PLACE_TTL))
            .fetch_all(conn)
            .await?;
        Ok(tickets.iter().map(|ticket| kept.contains(ticket)).collect())
    }

    async fn tidy(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx::Result<()> {
        let conn = conn.written().await?;
        sqlx::query(self.sql.tidy.get()).bind(json(tickets)?).execute(conn).await.map(|_| ())
    }

    async fn leave(&self, conn: &mut Connection, claim: &Claim) -> sqlx::Result<bool> {
        let conn = conn.written().await?;
        let left = sqlx::query(self.sql.leave.get()).bind(claim.owner().as_uuid()).execute(conn).await?;
        Ok(left.rows_affected() > 0)
    }

    async fn turns(
        &self,
        conn: &mut Connection,
        waiters: &Waiters,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(i64, Option<i64>)> = sqlx::query_as(self.sql.turns.get())
            .bind(json(&asked)?)
            .bind(waiters.client())
            .fetch_all(conn.get())
            .await?;
        let mut turns = Vec::new();
        for (at, head) in heads {
            if let Some(name) = usize::try_from(at).ok().and_then(|at| names.get(at)) {
                turns.extend(self.behind(conn, name, head, waiters).await?);
            }
        }
        Ok(turns)
    }

    async fn inspect(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<LockStatus> {
        let conn = conn.get();
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(name.as_str()).fetch_all(&mut *conn).await?;
        let waiters: i64 =
            sqlx::query_scalar(self.sql.waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<usize> {
        let conn = conn.synced().await?;
        begin(conn).await?;
        let freed = self.force(conn, name).await;
        end(conn, freed).await
    }

    async fn purge(&self, conn: &mut Connection, idle: Duration) -> sqlx::Result<u64> {
        let conn = conn.written().await?;
        loop {
            let gone = sqlx::query(self.sql.purge_queue.get()).bind(PORTION).execute(&mut *conn).await?;
            if gone.rows_affected() < PORTION.unsigned_abs() {
                break;
            }
        }
        // No name is empty.
        let (mut after, mut purged) = (String::new(), 0);
        loop {
            let portion = sqlx::query_scalar(self.sql.portion.get()).bind(&after).bind(PORTION);
            let Some(last): Option<String> = portion.fetch_one(&mut *conn).await? else { return Ok(purged) };
            let gone = sqlx::query(self.sql.purge.get())
                .bind(micros(idle))
                .bind(&after)
                .bind(&last)
                .execute(&mut *conn)
                .await?;
            purged += gone.rows_affected();
            after = last;
        }
    }
}
