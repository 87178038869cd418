//! Requests that need several statements.

use std::collections::HashSet;

use lockwell_core::{Claim, Grant};
use sqlx_core::from_row::FromRow;
use sqlx_core::row::Row;
use sqlx_mysql::{MySqlQueryResult, MySqlRow};
use uuid::Uuid;

use super::call::{Statement, StatementCall, send_whole};
use super::driver::{Conn, MySql};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::database::Database;
use crate::dialect::hints::Hint;
use crate::ids::AsUuid;
use crate::words::{ErrorClass, Extension, Hold, TakeRequest, TryAcquire, block, micros, token};

/// The state of a lock, as one claim sees it.
#[derive(Debug)]
pub(super) struct LockState {
    /// The token, if the claim holds the lock.
    pub(super) token: Option<i64>,
    /// `None`: there is no row, or the lock is free.
    pub(super) in_use: Option<i64>,
    pub(super) left: Option<i64>,
    /// Whether the lock has a row.
    pub(super) has_row: bool,
    /// Whether its last lease has ended without a release.
    overdue: bool,
    /// Whether somebody may be waiting.
    pub(super) waited: bool,
    /// The server's clock, in microseconds.
    pub(super) clock: i64,
}

impl<'r> FromRow<'r, MySqlRow> for LockState {
    /// Unchecked, since it comes by the text protocol as well, which has its own types.
    fn from_row(row: &'r MySqlRow) -> sqlx_core::Result<Self> {
        let flag = |at: usize| row.try_get_unchecked::<i64, _>(at).map(|flag| flag != 0);
        Ok(Self {
            token: row.try_get_unchecked(0)?,
            in_use: row.try_get_unchecked(1)?,
            left: row.try_get_unchecked(2)?,
            has_row: flag(3)?,
            overdue: flag(4)?,
            waited: flag(5)?,
            clock: row.try_get_unchecked(6)?,
        })
    }
}

impl LockState {
    pub(super) fn answer(&self, claim: &Claim) -> TryAcquire {
        match self.token {
            Some(number) if Hold::of(claim) == Hold::Together => TryAcquire::Member(token(number)),
            Some(number) => TryAcquire::Granted(token(number)),
            None => TryAcquire::refused(self.in_use, self.left),
        }
    }

    /// Whether nobody holds the lock or is ahead in the queue.
    pub(super) fn is_free(&self) -> bool {
        self.token.is_none() && self.in_use.is_none()
    }
}

/// A statement that takes one lock, with its arguments.
pub(super) fn taking<'a>(statement: &'a Statement, claim: &Claim) -> StatementCall<'a> {
    statement.of(claim).bind(micros(claim.ttl())).bind(claim.label()).bind(block(claim))
}

impl MySql {
    /// Takes one lock, with as few statements as possible: one if it is free, two if it is new.
    pub(super) async fn take_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<TryAcquire> {
        for step in plan(Asked::Take, self.hints.of(claim.name())) {
            let statement = match step {
                Step::TakeFree => &self.sql.take_free,
                Step::TakeOverdue => &self.sql.take_overdue,
                Step::TakeNew => &self.sql.take_new,
                _ => break,
            };
            if let Some(granted) = self.take_row(conn, claim, statement).await? {
                return Ok(granted);
            }
        }
        let Some(state) = self.lock_state_of(conn, claim).await? else { return Ok(TryAcquire::REFUSED) };
        if state.token.is_none() && !state.is_free() {
            self.hints.note(Hint::Held, claim.name());
            return Ok(state.answer(claim));
        }
        // The lock is free, its lease has ended, or this claim holds it and its lease is renewed.
        let statement = match (state.has_row, state.overdue) {
            (false, _) => &self.sql.take_new,
            (true, true) => &self.sql.take_overdue,
            (true, false) => &self.sql.take_free,
        };
        Ok(self.take_row(conn, claim, statement).await?.unwrap_or(TryAcquire::REFUSED))
    }

    /// Takes one lock by this statement. `None`: it is not for a lock like this one.
    async fn take_row(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        statement: &Statement,
    ) -> sqlx_core::Result<Option<TryAcquire>> {
        let done = taking(statement, claim).execute(&mut conn.inner).await;
        if let Err(sqlx_core::Error::Database(error)) = &done
            && self.class_of(&**error) == ErrorClass::Blocked
        {
            self.hints.note(Hint::RowLocked, claim.name());
        }
        Ok(granted(&done?))
    }

    pub(super) async fn take_many(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        let rows = Rows::of_requests(requests)?;
        let done = self.sql.take_many.call().bind(rows.json()).execute(&mut conn.inner).await?;
        let mut taken = done.rows_affected();
        let mut state = self.lock_state(conn, &rows).await?;
        if state.iter().any(|one| !one.has_row && one.is_free()) {
            let made = self.sql.take_new_many.call().bind(rows.json()).execute(&mut conn.inner).await?;
            taken += made.rows_affected();
            state = self.lock_state(conn, &rows).await?;
        }
        // A claim that held its lock already, and asks again after a lost answer, may have been skipped,
        // since others have locked the row. Then its lease has not begun anew. It may even have ended, and
        // another may be taking the lock.
        let all_are_taken = taken == state.iter().filter(|one| one.token.is_some()).count() as u64;
        let mut answers = Vec::with_capacity(requests.len());
        for (TakeRequest { claim, .. }, state) in requests.iter().zip(&state) {
            answers.push(match state {
                // It is unknown whether its lease has begun anew; or the lock is free, but somebody may be
                // waiting for it.
                one if (one.token.is_some() && !all_are_taken) || (one.is_free() && one.waited) => {
                    let taken = self.take_row(conn, claim, &self.sql.take_overdue).await;
                    self.unless_blocked(taken)?.unwrap_or(TryAcquire::REFUSED)
                }
                // The lock is free and was skipped: a transaction has locked its row.
                one if one.is_free() && one.has_row => TryAcquire::Blocked,
                one => one.answer(claim),
            });
        }
        Ok(answers)
    }

    /// A row that a transaction has locked refuses its own claim, and not the others of the batch.
    fn unless_blocked(
        &self,
        taken: sqlx_core::Result<Option<TryAcquire>>,
    ) -> sqlx_core::Result<Option<TryAcquire>> {
        match taken {
            Err(sqlx_core::Error::Database(error)) if self.class_of(&*error) == ErrorClass::Blocked => {
                Ok(Some(TryAcquire::Blocked))
            }
            other => other,
        }
    }

    /// The states of the locks of these rows, in the order of the request.
    pub(super) async fn lock_state(&self, conn: &mut Conn, rows: &Rows) -> sqlx_core::Result<Vec<LockState>> {
        let found: Vec<LockState> =
            self.sql.lock_state.call().bind(rows.json()).rows(&mut conn.inner).await?;
        Ok(rows.in_order(found.into_iter()))
    }

    /// The state of the lock of one claim.
    pub(super) async fn lock_state_of(
        &self,
        conn: &mut Conn,
        claim: &Claim,
    ) -> sqlx_core::Result<Option<LockState>> {
        let rows = Rows::of_claims(std::iter::once(claim))?;
        Ok(self.lock_state(conn, &rows).await?.pop())
    }

    /// Renews the leases whose rows no transaction has locked.
    pub(super) async fn renew_unlocked(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx_core::Result<Vec<Extension>> {
        let all = Rows::of_grants(grants.iter())?;
        let done = self.sql.renew.of(hold).call().bind(all.json()).execute(&mut conn.inner).await?;
        // sqlx counts the rows that were found, changed or not.
        if done.rows_affected() == grants.len() as u64 {
            return Ok(vec![Extension::Extended; grants.len()]);
        }
        // Some are lost or locked. To find out which, those that can be locked now are extended once more.
        let renewing = self.sql.renew_some.of(hold).call().bind(all.json());
        let answers = send_whole(&mut conn.inner, renewing.written()).await?;
        let unlocked = answers.rows.iter().map(|row| row.try_get_unchecked(0));
        let unlocked: HashSet<Uuid> = unlocked.collect::<sqlx_core::Result<_>>()?;
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
}

/// The grant, if a statement has taken its lock.
pub(super) fn granted(done: &MySqlQueryResult) -> Option<TryAcquire> {
    (done.rows_affected() > 0).then(|| TryAcquire::Granted(token(done.last_insert_id().cast_signed())))
}

fn owner(grant: &Grant) -> Uuid {
    grant.claim().owner().as_uuid()
}
