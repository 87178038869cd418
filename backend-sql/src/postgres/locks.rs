//! What PostgreSQL is asked about locks that one holds alone, and about the queue.

use std::time::Duration;

use lockcore::seats::{SEAT_LIFE, Seats};
use lockcore::{Claim, Grant, LockName, LockStatus};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{Postgres, names, owners};
use crate::dialect::{Ask, Dialect, Extension, Freed, Hold, HolderRow, Took, block, micros, status, token};
use crate::groups::Groups;

impl Postgres {
    async fn take_many(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let rows: Vec<(Option<i64>, Option<i64>, Option<i64>)> = sqlx::query_as(self.sql.take_many.get())
            .bind(names(asks.iter().map(|ask| &ask.claim)))
            .bind(owners(asks.iter().map(|ask| &ask.claim)))
            .bind(asks.iter().map(|ask| micros(ask.claim.ttl())).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.claim.label()).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.ticket).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| block(&ask.claim)).collect::<Vec<_>>())
            .fetch_all(conn)
            .await?;
        let answer = |(ask, (taken, in_use, left)): (&Ask, (Option<i64>, _, _))| match taken {
            Some(number) => Took::Granted(token(number)),
            None => Took::refused(ask, in_use, left),
        };
        Ok(asks.iter().zip(rows).map(answer).collect())
    }

    async fn release_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        seats: &Seats,
    ) -> sqlx::Result<Freed> {
        let head: Option<Option<i64>> = sqlx::query_scalar(self.sql.release.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(seats.client)
            .fetch_optional(&mut *conn)
            .await?;
        let Some(head) = head else { return Ok(Freed::default()) };
        Ok(Freed::new(true, self.behind(conn, claim.name(), head, seats).await?))
    }

    /// Answers with how many held the lock.
    async fn force(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<usize> {
        let mode: Option<i64> = sqlx::query_scalar(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
            .fetch_optional(&mut *conn)
            .await?;
        match mode {
            None => Ok(0),
            Some(0) => Ok(1),
            Some(_) => {
                let alive: Vec<bool> = sqlx::query_scalar(self.sql.force_members.get())
                    .bind(name.as_str())
                    .fetch_all(conn)
                    .await?;
                Ok(alive.into_iter().filter(|alive| *alive).count())
            }
        }
    }
}

impl Dialect for Postgres {
    async fn take(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if let [Ask { claim, ticket }] = asks {
            let taken: Option<i64> = sqlx::query_scalar(self.sql.take.get())
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(ticket)
                .bind(block(claim))
                .fetch_optional(&mut *conn)
                .await?;
            if let Some(number) = taken {
                return Ok(vec![Took::Granted(token(number))]);
            }
        }
        // Many claims; or one that was refused, or whose row does not exist yet.
        self.take_many(conn, asks).await
    }

    async fn release(
        &self,
        conn: &mut PgConnection,
        claims: &[Claim],
        seats: &Seats,
    ) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            return Ok(vec![self.release_one(conn, claim, seats).await?]);
        }
        let rows: Vec<(bool, bool, Option<i64>)> = sqlx::query_as(self.sql.release_many.get())
            .bind(names(claims.iter()))
            .bind(owners(claims.iter()))
            .bind(seats.client)
            .fetch_all(&mut *conn)
            .await?;
        let mut answers = Vec::with_capacity(claims.len());
        for (claim, (released, held, head)) in claims.iter().zip(rows) {
            let next = self.behind(conn, claim.name(), head, seats).await?;
            answers.push(Freed { released, blocked: held && !released, next });
        }
        Ok(answers)
    }

    async fn renew(
        &self,
        conn: &mut PgConnection,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
        let rows: Vec<(bool, bool)> = sqlx::query_as(self.sql.renew.of(hold).get())
            .bind(names(grants.iter().map(Grant::claim)))
            .bind(owners(grants.iter().map(Grant::claim)))
            .bind(grants.iter().map(|grant| micros(grant.claim().ttl())).collect::<Vec<_>>())
            .fetch_all(conn)
            .await?;
        let answer = |row| match row {
            (true, _) => Extension::Extended,
            (false, true) => Extension::Blocked,
            (false, false) => Extension::Lost,
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut PgConnection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        sqlx::query_scalar(self.sql.enroll.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(SEAT_LIFE))
            .bind(claim.label())
            .bind(claim.mode().code())
            .fetch_one(conn)
            .await
    }

    async fn stay(&self, conn: &mut PgConnection, tickets: &[i64]) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar(self.sql.stay.get()).bind(tickets).bind(micros(SEAT_LIFE)).fetch_all(conn).await
    }

    async fn tidy(&self, conn: &mut PgConnection, tickets: &[i64]) -> sqlx::Result<()> {
        sqlx::query(self.sql.tidy.get()).bind(tickets).execute(conn).await.map(|_| ())
    }

    async fn leave(&self, conn: &mut PgConnection, claim: &Claim) -> sqlx::Result<bool> {
        let left = sqlx::query(self.sql.leave.get()).bind(claim.owner().as_uuid()).execute(conn).await?;
        Ok(left.rows_affected() > 0)
    }

    async fn turns(
        &self,
        conn: &mut PgConnection,
        seats: &Seats,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(String, Option<i64>)> =
            sqlx::query_as(self.sql.turns.get()).bind(asked).bind(seats.client).fetch_all(&mut *conn).await?;
        self.behind_each(conn, heads, seats).await
    }

    async fn inspect(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<LockStatus> {
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(name.as_str()).fetch_all(&mut *conn).await?;
        let waiters: i64 =
            sqlx::query_scalar(self.sql.waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<usize> {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
        let freed = self.force(conn, name).await;
        let word = if freed.is_ok() { "COMMIT" } else { "ROLLBACK" };
        sqlx::raw_sql(word).execute(&mut *conn).await?;
        freed
    }

    async fn purge(&self, conn: &mut PgConnection, idle: Duration) -> sqlx::Result<u64> {
        sqlx::query(self.sql.purge_queue.get()).execute(&mut *conn).await?;
        Ok(sqlx::query(self.sql.purge.get()).bind(micros(idle)).execute(conn).await?.rows_affected())
    }
}
