//! Requests of several statements.

use std::collections::HashSet;

use lockcore::{Claim, Grant};
use sqlx::mysql::{MySqlQueryResult, MySqlRow};
use sqlx::{FromRow, Row};
use uuid::Uuid;

use super::contended::Known;
use super::rows::Rows;
use super::{Conn, MySql};
use crate::database::{Database, Verdict};
use crate::dialect::{Ask, Extension, Hold, NO_TICKET, Took, block, micros, token};
use crate::error::ended;
use crate::table::Sql;

/// How a lock stands, as one claim sees it.
#[derive(Debug)]
pub(super) struct Standing {
    /// The token, if the claim holds the lock.
    pub(super) token: Option<i64>,
    /// `None`: there is no row, or the lock is free.
    pub(super) in_use: Option<i64>,
    left: Option<i64>,
    /// Whether the lock has a row.
    pub(super) known: bool,
}

impl<'r> FromRow<'r, MySqlRow> for Standing {
    fn from_row(row: &'r MySqlRow) -> sqlx::Result<Self> {
        let known: i64 = row.try_get(3)?;
        Ok(Self { token: row.try_get(0)?, in_use: row.try_get(1)?, left: row.try_get(2)?, known: known != 0 })
    }
}

impl Standing {
    pub(super) fn answer(&self, ask: &Ask) -> Took {
        match self.token {
            Some(number) if Hold::of(&ask.claim) == Hold::Together => Took::Member(token(number)),
            Some(number) => Took::Granted(token(number)),
            None => Took::refused(&ask.claim, self.in_use, self.left),
        }
    }

    /// Whether nobody holds the lock or stands ahead.
    pub(super) fn is_free(&self) -> bool {
        self.token.is_none() && self.in_use.is_none()
    }
}

impl MySql {
    /// Takes one lock, in as few statements as what is known about it allows: one if it is free, two if it is new.
    pub(super) async fn take_one(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<Took> {
        let name = ask.claim.name();
        let known = self.contended.known(name);
        // One that was found taken is looked at first, unless the claim has been waiting for its turn.
        let look_first = known == Known::Taken && ask.ticket == NO_TICKET;
        let first = if known == Known::Locked { &self.sql.take_overdue } else { &self.sql.take_free };
        if !look_first && let Some(granted) = self.take_row(conn, ask, first).await? {
            return Ok(granted);
        }
        if known == Known::Nothing
            && let Some(granted) = self.take_new(conn, ask).await?
        {
            return Ok(granted);
        }
        let asks = std::slice::from_ref(ask);
        let standing = self.standing(conn, &Rows::of_asks(asks)?).await?;
        let Some(standing) = standing.first() else { return Ok(Took::Busy(None)) };
        if standing.token.is_none() && !standing.is_free() {
            self.contended.note(name, Known::Taken);
            return Ok(standing.answer(ask));
        }
        // It is free, its lease has ended, or it is ours and the lease begins anew.
        let taken = if standing.known {
            self.take_row(conn, ask, &self.sql.take_overdue).await?
        } else {
            self.take_new(conn, ask).await?
        };
        Ok(taken.unwrap_or(Took::Busy(None)))
    }

    /// Takes one lock whose row is there. `None`: it is not, or it is not free.
    async fn take_row(&self, conn: &mut Conn, ask: &Ask, sql: &Sql) -> sqlx::Result<Option<Took>> {
        let (name, owner) = (ask.claim.name().as_str().as_bytes(), ask.claim.owner().as_uuid());
        let done = sqlx::query(sql.get())
            .bind(owner)
            .bind(block(&ask.claim))
            .bind(owner)
            .bind(owner)
            .bind(micros(ask.claim.ttl()))
            .bind(ask.claim.label())
            .bind(name)
            .bind(name)
            .bind(owner)
            .bind(owner)
            .bind(name)
            .bind(ask.ticket)
            .execute(&mut conn.inner)
            .await;
        if let Err(sqlx::Error::Database(error)) = &done
            && self.verdict(&**error) == Verdict::Blocked
        {
            self.contended.note(ask.claim.name(), Known::Locked);
        }
        Ok(granted(&done?))
    }

    /// Takes one lock that has no row yet. `None`: it has one, or somebody stands ahead.
    async fn take_new(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<Option<Took>> {
        let (name, owner) = (ask.claim.name().as_str().as_bytes(), ask.claim.owner().as_uuid());
        let done = sqlx::query(self.sql.take_new.get())
            .bind(name)
            .bind(owner)
            .bind(block(&ask.claim))
            .bind(micros(ask.claim.ttl()))
            .bind(ask.claim.label())
            .bind(name)
            .bind(name)
            .bind(ask.ticket)
            .execute(&mut conn.inner)
            .await?;
        Ok(granted(&done))
    }

    pub(super) async fn take_many(&self, conn: &mut Conn, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let rows = Rows::of_asks(asks)?;
        sqlx::query(self.sql.take_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        let mut standing = self.standing(conn, &rows).await?;
        if standing.iter().any(|one| !one.known && one.is_free()) {
            sqlx::query(self.sql.take_new_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
            standing = self.standing(conn, &rows).await?;
        }
        let answer = |(ask, standing): (&Ask, &Standing)| {
            // Free and yet passed over: somebody has locked the row.
            if standing.known && standing.is_free() { Took::Blocked } else { standing.answer(ask) }
        };
        Ok(asks.iter().zip(&standing).map(answer).collect())
    }

    /// How the locks of these rows stand, in the order of the question.
    pub(super) async fn standing(&self, conn: &mut Conn, rows: &Rows) -> sqlx::Result<Vec<Standing>> {
        let found: Vec<Standing> =
            sqlx::query_as(self.sql.standing.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        Ok(rows.in_order(found.into_iter()))
    }

    /// Whether it was released, and whether somebody waits.
    pub(super) async fn release_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<(bool, bool)> {
        let (name, owner) = (claim.name().as_str().as_bytes(), claim.owner().as_uuid());
        // sqlx counts the rows that were found, changed or not.
        let done = sqlx::query(self.sql.release.get())
            .bind(name)
            .bind(name)
            .bind(owner)
            .bind(name)
            .bind(owner)
            .execute(&mut conn.inner)
            .await?;
        let released = done.rows_affected() > 0;
        Ok((released, released && done.last_insert_id() > 0))
    }

    /// The rows of others are not touched: a claim that was refused gives up as well, and must not wait for a transaction
    /// that has verified another's hold.
    pub(super) async fn release_many(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx::Result<Vec<bool>> {
        let rows = Rows::of_claims(claims.iter())?;
        let owned: Vec<Uuid> =
            sqlx::query_scalar(self.sql.owned.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        let owned: HashSet<Uuid> = owned.into_iter().collect();
        let is_owned = |claim: &Claim| owned.contains(&claim.owner().as_uuid());
        let mine: Vec<Claim> = claims.iter().filter(|claim| is_owned(claim)).cloned().collect();
        let released: HashSet<Uuid> = self.release_owned(conn, &mine).await?;
        Ok(claims.iter().map(|claim| released.contains(&claim.owner().as_uuid())).collect())
    }

    async fn release_owned(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx::Result<HashSet<Uuid>> {
        let owners = || claims.iter().map(|claim| claim.owner().as_uuid());
        if claims.is_empty() {
            return Ok(HashSet::new());
        }
        let rows = Rows::of_claims(claims.iter())?;
        // Usually none of them is lost between the two statements.
        let done =
            sqlx::query(self.sql.release_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        if done.rows_affected() == claims.len() as u64 {
            return Ok(owners().collect());
        }
        let released: Vec<bool> =
            sqlx::query_scalar(self.sql.released.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        let released = rows.in_order(released.into_iter());
        Ok(owners().zip(released).filter(|(_, released)| *released).map(|(owner, _)| owner).collect())
    }

    /// Renews what no transaction has locked.
    pub(super) async fn renew_unlocked(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
        let all = Rows::of_grants(grants.iter())?;
        let done =
            sqlx::query(self.sql.renew.of(hold).get()).bind(all.json()).execute(&mut conn.inner).await?;
        // sqlx counts the rows that were found, changed or not.
        if done.rows_affected() == grants.len() as u64 {
            return Ok(vec![Extension::Extended; grants.len()]);
        }
        // Some are lost or locked. Which ones: those that can be locked now are extended once more.
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

fn granted(done: &MySqlQueryResult) -> Option<Took> {
    (done.rows_affected() > 0).then(|| Took::Granted(token(done.last_insert_id().cast_signed())))
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
    ended(outcome, sqlx::raw_sql(word).execute(&mut conn.inner).await.map(drop))
}
