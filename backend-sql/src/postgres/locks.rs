//! What PostgreSQL is asked about locks that one holds alone, and about the queue.

use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters};
use lockcore::{Claim, Grant, LockName, LockStatus};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{Postgres, names, owners};
use crate::dialect::{
    Ask, Dialect, Extension, Freed, Hold, HolderRow, NO_TICKET, Took, block, micros, status, token,
};
use crate::error::ended;
use crate::groups::Groups;
use crate::table::Sql;

impl Postgres {
    async fn take_many(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let rows: Vec<(Option<i64>, Option<i64>, Option<i64>)> = self
            .statement(&self.sql.take_many)
            .bind(names(asks.iter().map(|ask| &ask.claim)))
            .bind(owners(asks.iter().map(|ask| &ask.claim)))
            .bind(asks.iter().map(|ask| micros(ask.claim.ttl())).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.claim.label()).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| ask.ticket).collect::<Vec<_>>())
            .bind(asks.iter().map(|ask| block(&ask.claim)).collect::<Vec<_>>())
            .rows(conn)
            .await?;
        let answer = |(ask, (taken, in_use, left)): (&Ask, (Option<i64>, _, _))| match taken {
            Some(number) => Took::Granted(token(number)),
            None => Took::refused(ask, in_use, left),
        };
        Ok(asks.iter().zip(rows).map(answer).collect())
    }

    /// Frees one lock by this statement, or takes one member out of its group.
    pub(super) async fn free_one(
        &self,
        conn: &mut PgConnection,
        sql: &Sql,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Freed> {
        let head: Option<Option<i64>> = self
            .statement(sql)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(waiters.client())
            .value(&mut *conn)
            .await?;
        let Some(head) = head else { return Ok(Freed::default()) };
        Ok(Freed::new(true, self.behind(conn, claim.name(), head, waiters).await?))
    }

    /// Answers with how many held the lock.
    async fn force(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<usize> {
        let mode: Option<i64> = self
            .statement(&self.sql.force)
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
            .value(&mut *conn)
            .await?;
        match mode {
            None => Ok(0),
            Some(0) => Ok(1),
            Some(_) => {
                let alive: Vec<bool> =
                    self.statement(&self.sql.force_members).bind(name.as_str()).values(conn).await?;
                Ok(alive.into_iter().filter(|alive| *alive).count())
            }
        }
    }
}

impl Dialect for Postgres {
    const TIDIES_UP: bool = true;

    async fn take(&self, conn: &mut PgConnection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if let [Ask { claim, ticket }] = asks {
            let take = if *ticket == NO_TICKET { &self.sql.take } else { &self.sql.take_queued };
            let taken: Option<i64> = self
                .statement(take)
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(*ticket)
                .bind(block(claim))
                .value(&mut *conn)
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
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            return Ok(vec![self.free_one(conn, &self.sql.release, claim, waiters).await?]);
        }
        let rows: Vec<(bool, bool, Option<i64>)> = self
            .statement(&self.sql.release_many)
            .bind(names(claims.iter()))
            .bind(owners(claims.iter()))
            .bind(waiters.client())
            .rows(&mut *conn)
            .await?;
        let mut answers = Vec::with_capacity(claims.len());
        for (claim, (released, held, head)) in claims.iter().zip(rows) {
            let next = self.behind(conn, claim.name(), head, waiters).await?;
            answers.push(Freed { blocked: held && !released, ..Freed::new(released, next) });
        }
        Ok(answers)
    }

    async fn renew(
        &self,
        conn: &mut PgConnection,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
        let rows: Vec<(bool, bool)> = self
            .statement(self.sql.renew.of(hold))
            .bind(names(grants.iter().map(Grant::claim)))
            .bind(owners(grants.iter().map(Grant::claim)))
            .bind(grants.iter().map(|grant| micros(grant.claim().ttl())).collect::<Vec<_>>())
            .rows(conn)
            .await?;
        let answer = |row| match row {
            (true, _) => Extension::Extended,
            (false, true) => Extension::Blocked,
            (false, false) => Extension::Lost,
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut PgConnection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        self.statement(&self.sql.enroll)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(client)
            .bind(micros(PLACE_TTL))
            .bind(claim.label())
            .bind(claim.mode().code())
            .only_value(conn)
            .await
    }

    async fn keep(&self, conn: &mut PgConnection, places: &[(i64, Uuid)]) -> sqlx::Result<Vec<bool>> {
        let kept: Vec<Uuid> = self
            .statement(&self.sql.stay)
            .bind(places.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>())
            .bind(places.iter().map(|(_, owner)| *owner).collect::<Vec<_>>())
            .bind(micros(PLACE_TTL))
            .values(conn)
            .await?;
        Ok(places.iter().map(|(_, owner)| kept.contains(owner)).collect())
    }

    async fn leave(&self, conn: &mut PgConnection, claim: &Claim) -> sqlx::Result<bool> {
        let left = self.statement(&self.sql.leave).bind(claim.owner().as_uuid()).execute(conn).await?;
        Ok(left.rows_affected() > 0)
    }

    async fn turns(
        &self,
        conn: &mut PgConnection,
        waiters: &Waiters,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(String, Option<i64>)> =
            self.statement(&self.sql.turns).bind(asked).bind(waiters.client()).rows(&mut *conn).await?;
        self.behind_each(conn, heads, waiters).await
    }

    async fn inspect(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<LockStatus> {
        let holders: Vec<HolderRow> =
            self.statement(&self.sql.holders).bind(name.as_str()).rows(&mut *conn).await?;
        let waiters: i64 = self.statement(&self.sql.waiters).bind(name.as_str()).only_value(conn).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<usize> {
        sqlx::raw_sql("BEGIN ISOLATION LEVEL READ COMMITTED").execute(&mut *conn).await?;
        let freed = self.force(conn, name).await;
        let word = if freed.is_ok() { "COMMIT" } else { "ROLLBACK" };
        ended(freed, sqlx::raw_sql(word).execute(conn).await.map(drop))
    }

    async fn purge(&self, conn: &mut PgConnection, idle: Duration) -> sqlx::Result<u64> {
        self.statement(&self.sql.purge_queue).execute(&mut *conn).await?;
        Ok(self.statement(&self.sql.purge).bind(micros(idle)).execute(conn).await?.rows_affected())
    }
}
