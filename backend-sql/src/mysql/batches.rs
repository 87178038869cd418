//! Requests of several statements.

use std::collections::HashSet;

use lockcore::{Claim, Grant};
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};
use uuid::Uuid;

use super::rows::Rows;
use super::{Conn, MySql};
use crate::dialect::{Ask, Extension, Hold, Took, block, micros, token};

/// How a lock stands, as one claim sees it.
#[derive(Debug)]
pub(super) struct Standing {
    /// The token, if the claim holds the lock.
    pub(super) token: Option<i64>,
    /// `None`: there is no row, or the lock is free.
    pub(super) in_use: Option<i64>,
    left: Option<i64>,
}

impl<'r> FromRow<'r, MySqlRow> for Standing {
    fn from_row(row: &'r MySqlRow) -> sqlx::Result<Self> {
        Ok(Self { token: row.try_get(0)?, in_use: row.try_get(1)?, left: row.try_get(2)? })
    }
}

impl Standing {
    pub(super) fn answer(&self, ask: &Ask) -> Took {
        match self.token {
            Some(number) if Hold::of(&ask.claim) == Hold::Together => Took::Member(token(number)),
            Some(number) => Took::Granted(token(number)),
            None => Took::refused(ask, self.in_use, self.left),
        }
    }
}

impl MySql {
    /// Takes one lock whose row is there and free. `None`: it is not, or it is contended.
    pub(super) async fn take_row(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<Option<Took>> {
        let (name, owner) = (ask.claim.name().as_str().as_bytes(), ask.claim.owner().as_uuid());
        let done = sqlx::query(self.sql.take_row.get())
            .bind(owner)
            .bind(block(&ask.claim))
            .bind(owner)
            .bind(owner)
            .bind(micros(ask.claim.ttl()))
            .bind(ask.claim.label())
            .bind(name)
            .bind(owner)
            .bind(name)
            .bind(ask.ticket)
            .execute(&mut conn.inner)
            .await?;
        let taken = done.rows_affected() > 0;
        Ok(taken.then(|| Took::Granted(token(done.last_insert_id().cast_signed()))))
    }

    /// Takes one lock and reads the answer in the same round trip. `None`: refused.
    pub(super) async fn take_returning(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<Option<Took>> {
        let (name, owner) = (ask.claim.name().as_str().as_bytes(), ask.claim.owner().as_uuid());
        let row = sqlx::query(self.sql.take_returning.get())
            .bind(name)
            .bind(owner)
            .bind(block(&ask.claim))
            .bind(micros(ask.claim.ttl()))
            .bind(ask.claim.label())
            .bind(name)
            .bind(owner)
            .bind(name)
            .bind(ask.ticket)
            .bind(name)
            .bind(name)
            .bind(owner)
            .bind(block(&ask.claim))
            .fetch_optional(&mut conn.inner)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let winner: Uuid = row.try_get(0)?;
        Ok((winner == owner).then_some(Took::Granted(token(row.try_get(1)?))))
    }

    /// Takes one lock by statements that lock no row of a lock that is held, and make a row that is missing.
    pub(super) async fn take_new_or_contended(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<Took> {
        let asks = std::slice::from_ref(ask);
        if !conn.returning {
            return Ok(self.take_by_reading(conn, asks).await?[0]);
        }
        if let Some(granted) = self.take_returning(conn, ask).await? {
            return Ok(granted);
        }
        let standing = self.standing(conn, &Rows::of_asks(asks)?).await?;
        Ok(standing.first().map_or(Took::Busy(None), |standing| standing.answer(ask)))
    }

    pub(super) async fn take_by_reading(&self, conn: &mut Conn, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let rows = Rows::of_asks(asks)?;
        if let [ask] = asks {
            let (name, owner) = (ask.claim.name().as_str().as_bytes(), ask.claim.owner().as_uuid());
            sqlx::query(self.sql.take.get())
                .bind(name)
                .bind(owner)
                .bind(block(&ask.claim))
                .bind(micros(ask.claim.ttl()))
                .bind(ask.claim.label())
                .bind(name)
                .bind(owner)
                .bind(name)
                .bind(ask.ticket)
                .bind(name)
                .bind(name)
                .bind(owner)
                .bind(block(&ask.claim))
                .execute(&mut conn.inner)
                .await?;
        } else {
            sqlx::query(self.sql.take_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        }
        let standing = self.standing(conn, &rows).await?;
        Ok(asks.iter().zip(&standing).map(|(ask, standing)| standing.answer(ask)).collect())
    }

    /// How the locks of these rows stand, in the order of the question.
    pub(super) async fn standing(&self, conn: &mut Conn, rows: &Rows) -> sqlx::Result<Vec<Standing>> {
        let found: Vec<Standing> =
            sqlx::query_as(self.sql.standing.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        Ok(rows.in_order(found.into_iter()))
    }

    pub(super) async fn release_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        // sqlx counts the rows that were found, changed or not.
        let found = sqlx::query(self.sql.release.get())
            .bind(claim.name().as_str().as_bytes())
            .bind(claim.owner().as_uuid())
            .execute(&mut conn.inner)
            .await?;
        Ok(found.rows_affected() > 0)
    }

    /// Which of the claims held their locks is read in the same transaction: after it, another may have taken them.
    pub(super) async fn release_many(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx::Result<Vec<bool>> {
        let rows = Rows::of_claims(claims.iter())?;
        begin(conn).await?;
        let released = self.release_found(conn, &rows, claims.len()).await;
        end(conn, released).await
    }

    async fn release_found(&self, conn: &mut Conn, rows: &Rows, many: usize) -> sqlx::Result<Vec<bool>> {
        let done =
            sqlx::query(self.sql.release_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        if done.rows_affected() == many as u64 {
            return Ok(vec![true; many]);
        }
        let released: Vec<bool> =
            sqlx::query_scalar(self.sql.released.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        Ok(rows.in_order(released.into_iter()))
    }

    /// Renews what no transaction has locked. One locked row must not hold up the others, and the shortest time that the
    /// server can be told to wait for it, a second, is longer than some leases can spare.
    pub(super) async fn renew_unlocked(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
        let all = Rows::of_grants(grants.iter())?;
        begin(conn).await?;
        let renewed = self.renew_found(conn, hold, grants, &all).await;
        let unlocked = end(conn, renewed).await?;
        if grants.iter().all(|grant| unlocked.contains(&owner(grant))) {
            return Ok(vec![Extension::Extended; grants.len()]);
        }
        let standing = self.standing(conn, &all).await?;
        let answer =
            |(grant, standing): (&Grant, &Standing)| match (unlocked.contains(&owner(grant)), standing.token)
            {
                (true, Some(_)) => Extension::Extended,
                (false, Some(_)) => Extension::Blocked,
                (_, None) => Extension::Lost,
            };
        Ok(grants.iter().zip(&standing).map(answer).collect())
    }

    async fn renew_found(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
        all: &Rows,
    ) -> sqlx::Result<HashSet<Uuid>> {
        let unlocked: Vec<Uuid> = sqlx::query_scalar(self.sql.unlocked.of(hold).get())
            .bind(all.json())
            .fetch_all(&mut conn.inner)
            .await?;
        let unlocked: HashSet<Uuid> = unlocked.into_iter().collect();
        let some = Rows::of_grants(grants.iter().filter(|grant| unlocked.contains(&owner(grant))))?;
        sqlx::query(self.sql.renew.of(hold).get()).bind(some.json()).execute(&mut conn.inner).await?;
        Ok(unlocked)
    }
}

fn owner(grant: &Grant) -> Uuid {
    grant.claim().owner().as_uuid()
}

pub(super) async fn begin(conn: &mut Conn) -> sqlx::Result<()> {
    sqlx::raw_sql("START TRANSACTION").execute(&mut conn.inner).await.map(|_| ())
}

/// Ends a transaction. After an error nothing of it may stay open: later statements would join it.
pub(super) async fn end<T>(conn: &mut Conn, outcome: sqlx::Result<T>) -> sqlx::Result<T> {
    let word = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    sqlx::raw_sql(word).execute(&mut conn.inner).await?;
    outcome
}
