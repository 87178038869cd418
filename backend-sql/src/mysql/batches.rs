//! Requests that need several statements.

use std::collections::HashSet;

use lockcore::{Claim, Grant};
use sqlx::mysql::{MySqlQueryResult, MySqlRow};
use sqlx::{FromRow, Row};
use uuid::Uuid;

use super::contended::Contention;
use super::rows::Rows;
use super::{Conn, MySql};
use crate::database::{Database, Verdict};
use crate::dialect::{Extension, Hold, NO_TICKET, TakeRequest, TryAcquire, block, micros, token};
use crate::error::ended;
use crate::table::Sql;

/// The state of a lock, as one claim sees it.
#[derive(Debug)]
pub(super) struct LockState {
    /// The token, if the claim holds the lock.
    pub(super) token: Option<i64>,
    /// `None`: there is no row, or the lock is free.
    pub(super) in_use: Option<i64>,
    left: Option<i64>,
    /// Whether the lock has a row.
    pub(super) has_row: bool,
}

impl<'r> FromRow<'r, MySqlRow> for LockState {
    fn from_row(row: &'r MySqlRow) -> sqlx::Result<Self> {
        let has_row: i64 = row.try_get(3)?;
        Ok(Self {
            token: row.try_get(0)?,
            in_use: row.try_get(1)?,
            left: row.try_get(2)?,
            has_row: has_row != 0,
        })
    }
}

impl LockState {
    pub(super) fn answer(&self, request: &TakeRequest) -> TryAcquire {
        match self.token {
            Some(number) if Hold::of(&request.claim) == Hold::Together => TryAcquire::Member(token(number)),
            Some(number) => TryAcquire::Granted(token(number)),
            None => TryAcquire::refused(&request.claim, self.in_use, self.left),
        }
    }

    /// Whether nobody holds the lock or is ahead in the queue.
    pub(super) fn is_free(&self) -> bool {
        self.token.is_none() && self.in_use.is_none()
    }
}

impl MySql {
    /// Takes one lock, with as few statements as possible: one if it is free, two if it is new.
    pub(super) async fn take_one(&self, conn: &mut Conn, request: &TakeRequest) -> sqlx::Result<TryAcquire> {
        let name = request.claim.name();
        let contention = self.contended.contention(name);
        // A lock that was found held is read first, unless the claim has been waiting for its turn.
        let look_first = contention == Contention::Held && request.ticket == NO_TICKET;
        let first =
            if contention == Contention::RowLocked { &self.sql.take_overdue } else { &self.sql.take_free };
        if !look_first && let Some(granted) = self.take_row(conn, request, first).await? {
            return Ok(granted);
        }
        if contention == Contention::None
            && let Some(granted) = self.take_new(conn, request).await?
        {
            return Ok(granted);
        }
        let requests = std::slice::from_ref(request);
        let state = self.lock_state(conn, &Rows::of_requests(requests)?).await?;
        let Some(state) = state.first() else { return Ok(TryAcquire::Busy(None)) };
        if state.token.is_none() && !state.is_free() {
            self.contended.note(name, Contention::Held);
            return Ok(state.answer(request));
        }
        // The lock is free, its lease has ended, or this claim holds it and its lease is renewed.
        let taken = if state.has_row {
            self.take_row(conn, request, &self.sql.take_overdue).await?
        } else {
            self.take_new(conn, request).await?
        };
        Ok(taken.unwrap_or(TryAcquire::Busy(None)))
    }

    /// Takes one lock that has a row. `None`: it has none, or is not free.
    async fn take_row(
        &self,
        conn: &mut Conn,
        request: &TakeRequest,
        sql: &Sql,
    ) -> sqlx::Result<Option<TryAcquire>> {
        let (name, owner) = (request.claim.name().as_str().as_bytes(), request.claim.owner().as_uuid());
        let done = sqlx::query(sql.get())
            .bind(owner)
            .bind(block(&request.claim))
            .bind(owner)
            .bind(owner)
            .bind(micros(request.claim.ttl()))
            .bind(request.claim.label())
            .bind(name)
            .bind(name)
            .bind(owner)
            .bind(owner)
            .bind(name)
            .bind(request.ticket)
            .execute(&mut conn.inner)
            .await;
        if let Err(sqlx::Error::Database(error)) = &done
            && self.verdict(&**error) == Verdict::Blocked
        {
            self.contended.note(request.claim.name(), Contention::RowLocked);
        }
        Ok(granted(&done?))
    }

    /// Takes one lock that has no row yet. `None`: it has one, or another claim is ahead in the queue.
    async fn take_new(&self, conn: &mut Conn, request: &TakeRequest) -> sqlx::Result<Option<TryAcquire>> {
        let (name, owner) = (request.claim.name().as_str().as_bytes(), request.claim.owner().as_uuid());
        let done = sqlx::query(self.sql.take_new.get())
            .bind(name)
            .bind(owner)
            .bind(block(&request.claim))
            .bind(micros(request.claim.ttl()))
            .bind(request.claim.label())
            .bind(name)
            .bind(name)
            .bind(request.ticket)
            .execute(&mut conn.inner)
            .await?;
        Ok(granted(&done))
    }

    pub(super) async fn take_many(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
        let rows = Rows::of_requests(requests)?;
        sqlx::query(self.sql.take_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        let mut state = self.lock_state(conn, &rows).await?;
        if state.iter().any(|one| !one.has_row && one.is_free()) {
            sqlx::query(self.sql.take_new_many.get()).bind(rows.json()).execute(&mut conn.inner).await?;
            state = self.lock_state(conn, &rows).await?;
        }
        let answer = |(request, state): (&TakeRequest, &LockState)| {
            // The lock is free and was skipped: a transaction has locked its row.
            if state.has_row && state.is_free() { TryAcquire::Blocked } else { state.answer(request) }
        };
        Ok(requests.iter().zip(&state).map(answer).collect())
    }

    /// The states of the locks of these rows, in the order of the request.
    pub(super) async fn lock_state(&self, conn: &mut Conn, rows: &Rows) -> sqlx::Result<Vec<LockState>> {
        let found: Vec<LockState> =
            sqlx::query_as(self.sql.lock_state.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        Ok(rows.in_order(found.into_iter()))
    }

    /// Releases one lock. Returns whether it was held, and whether somebody waits.
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

    /// Releases several locks. It does not lock rows of other owners: a claim that was refused is released as well, and must
    /// not wait for a transaction that has verified the hold of another.
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
        // Usually no lock is lost between the two statements.
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

    /// Renews the leases whose rows no transaction has locked.
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
        // Some are lost or locked. To find out which, those that can be locked now are extended once more.
        begin(conn).await?;
        let renewed = self.renew_found(conn, hold, grants, &all).await;
        let unlocked = end(conn, renewed).await?;
        if grants.iter().all(|grant| unlocked.contains(&owner(grant))) {
            return Ok(vec![Extension::Extended; grants.len()]);
        }
        let state = self.lock_state(conn, &all).await?;
        let answer =
            |(grant, state): (&Grant, &LockState)| match (unlocked.contains(&owner(grant)), state.token) {
                (true, Some(_)) => Extension::Extended,
                (false, Some(_)) => Extension::Blocked,
                (_, None) => Extension::Lost,
            };
        Ok(grants.iter().zip(&state).map(answer).collect())
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

fn granted(done: &MySqlQueryResult) -> Option<TryAcquire> {
    (done.rows_affected() > 0).then(|| TryAcquire::Granted(token(done.last_insert_id().cast_signed())))
}

fn owner(grant: &Grant) -> Uuid {
    grant.claim().owner().as_uuid()
}

pub(super) async fn begin(conn: &mut Conn) -> sqlx::Result<()> {
    sqlx::raw_sql("START TRANSACTION").execute(&mut conn.inner).await.map(|_| ())
}

/// Ends a transaction. It must not stay open after an error: later statements would become part of it.
pub(super) async fn end<T>(conn: &mut Conn, outcome: sqlx::Result<T>) -> sqlx::Result<T> {
    let word = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    ended(outcome, sqlx::raw_sql(word).execute(&mut conn.inner).await.map(drop))
}
