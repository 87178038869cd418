//! The requests about groups on MySQL.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwell_core::{Claim, Grant, LockName, Mode};
use sqlx::Row;
use sqlx::mysql::MySqlQueryResult;
use uuid::Uuid;

use super::batches::granted;
use super::call::{Call, Statement, send_whole};
use super::driver::{Conn, MySql};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::groups::Groups;
use crate::dialect::hints::Hint;
use crate::ids::AsUuid;
use crate::words::{Freed, Hold, TakeRequest, TryAcquire, block, micros};

/// How often a claim is repeated that was refused although its lock was free afterwards.
const AGAIN: usize = 3;
/// How many statements begin a transaction.
const BEGINS: usize = 2;
/// How many statements `join`, `leave_group` and `reap` have.
const STATEMENTS: usize = 4;
/// Which statement of `join` lets the claim in, and which of the others deletes rows of members.
const JOINS: usize = 0;
const DELETES: usize = 1;

/// The head of a queue: its ticket if it waits in this process, or its client if it waits in another.
type Head = (Option<i64>, Option<Uuid>);

impl MySql {
    /// Adds claims to groups. `None`: the reason of the refusal is gone. `overdue`: also takes a lock whose
    /// lease has ended.
    async fn join_rows(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
        overdue: bool,
    ) -> sqlx::Result<Vec<Option<TryAcquire>>> {
        let mut tried = vec![false; requests.len()];
        for (request, tried) in requests.iter().zip(&mut tried) {
            let steps = plan(Asked::Join, self.hints.of(request.claim.name()));
            *tried = steps[0] == Step::Join || self.may_join(conn, request).await?;
        }
        let mut answers = vec![None; requests.len()];
        let tries: Vec<usize> = (0..requests.len()).filter(|&at| tried[at]).collect();
        let join = if overdue { &self.sql.join_overdue } else { &self.sql.join };
        let joining = tries.iter().map(|&at| joining(join, &requests[at].claim));
        for (at, done) in tries.iter().zip(self.together(conn, joining, JOINS).await?) {
            answers[*at] = granted(&done);
        }
        let refused: Vec<usize> = (0..requests.len()).filter(|&at| answers[at].is_none()).collect();
        if refused.is_empty() {
            return Ok(answers);
        }
        let of: Vec<TakeRequest> = refused.iter().map(|&at| requests[at].clone()).collect();
        for (at, state) in refused.into_iter().zip(self.lock_state(conn, &Rows::of_requests(&of)?).await?) {
            let request = &requests[at];
            if state.is_free() {
                if !state.has_row {
                    self.sql.make.call().bind(request.claim.name()).execute(&mut conn.inner).await?;
                }
            } else if state.in_use != Some(request.claim.mode().code())
                || !tried[at]
                || !self.may_join(conn, request).await?
            {
                self.hints.note(Hint::Held, request.claim.name());
                answers[at] = Some(state.answer(&request.claim));
            }
        }
        Ok(answers)
    }

    async fn may_join(&self, conn: &mut Conn, request: &TakeRequest) -> sqlx::Result<bool> {
        let found: Option<i64> =
            joining(&self.sql.may_join_one, &request.claim).value(&mut conn.inner).await?;
        Ok(found.is_some())
    }

    /// Carries out calls of four statements each in one transaction, which is one message: a process that is
    /// stopped or cut off keeps no row locked. Returns what one statement of each call has done.
    async fn together<'a>(
        &self,
        conn: &mut Conn,
        calls: impl ExactSizeIterator<Item = Call<'a>>,
        which: usize,
    ) -> sqlx::Result<Vec<MySqlQueryResult>> {
        let many = calls.len();
        if many == 0 {
            return Ok(Vec::new());
        }
        let (begin, commit) = (self.sql.begin.text().to_owned(), self.sql.commit.text().to_owned());
        let all = std::iter::once(begin).chain(calls.map(|call| call.written())).chain([commit]);
        let done = send_whole(&mut conn.inner, all.collect::<Vec<_>>().join(";\n")).await?.done;
        Ok(done.into_iter().skip(BEGINS + which).step_by(STATEMENTS).take(many).collect())
    }
}

fn name_of(bytes: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// A statement that adds a claim to a group, or says whether it may join.
fn joining<'a>(statement: &'a Statement, claim: &Claim) -> Call<'a> {
    statement
        .call()
        .bind(claim.name())
        .bind(claim.owner().as_uuid())
        .bind(block(claim))
        .bind(claim.mode().code())
        .bind(micros(claim.ttl()))
        .bind(claim.label())
}

impl Groups for MySql {
    async fn join(
        &self,
        conn: &mut Conn,
        _: Mode,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
        let mut answers = self.join_rows(conn, requests, false).await?;
        for _ in 0..AGAIN {
            let rest: Vec<usize> = (0..requests.len()).filter(|&at| answers[at].is_none()).collect();
            if rest.is_empty() {
                break;
            }
            let again: Vec<TakeRequest> = rest.iter().map(|&at| requests[at].clone()).collect();
            for (at, answer) in rest.into_iter().zip(self.join_rows(conn, &again, true).await?) {
                answers[at] = answer;
            }
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(TryAcquire::Busy(None))).collect())
    }

    async fn leave_group(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx::Result<Vec<Freed>> {
        let leaving =
            |claim: &Claim| self.sql.leave_group.call().bind(claim.name()).bind(claim.owner().as_uuid());
        let mut sorted: Vec<usize> = (0..claims.len()).collect();
        sorted.sort_unstable_by_key(|&at| claims[at].name());
        let mut released = vec![false; claims.len()];
        let left = self.together(conn, sorted.iter().map(|&at| leaving(&claims[at])), DELETES).await?;
        for (at, done) in sorted.into_iter().zip(left) {
            released[at] = done.rows_affected() > 0;
        }
        // A late copy of the request of a claim that is no member any more may have taken a place. For an
        // exclusive claim, the release of its lock has deleted that.
        let is_lost = |(claim, released): (_, &bool)| !released && Hold::of(claim) == Hold::Together;
        let lost = claims.iter().zip(&released).filter(|(claim, released)| is_lost((*claim, *released)));
        let lost: Vec<_> = lost.map(|(claim, _)| claim).collect();
        if !lost.is_empty() {
            let rows = Rows::of_claims(lost.into_iter())?;
            let forget = self.sql.forget_all.call().bind(rows.json());
            if let Err(error) = forget.execute(&mut conn.inner).await {
                return Err(if released.contains(&true) { in_doubt(error) } else { error });
            }
        }
        self.freed(conn, claims, &released).await
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        self.together(conn, sorted.into_iter().map(|name| self.sql.reap.call().bind(name)), DELETES).await?;
        let mut next = Vec::new();
        for name in names {
            next.extend(self.next(conn, name).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<Vec<u8>> =
            self.sql.stale_groups.call().bind(micros(idle)).values(&mut conn.inner).await?;
        Ok(names.iter().filter_map(|name| name_of(name)).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, grant: &Grant) -> sqlx::Result<bool> {
        let (name, owner) = (grant.claim().name(), grant.claim().owner().as_uuid());
        let call = self.sql.downgrade.call().bind(name).bind(owner).bind(Mode::Shared.code());
        let answers = send_whole(&mut conn.inner, call.written()).await?;
        let is_member: i64 = answers.rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get_unchecked(0)?;
        Ok(is_member != 0)
    }

    async fn head(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<Option<i64>> {
        let head: Option<Head> =
            self.sql.next.call().bind(name).bind(conn.client()).row(&mut conn.inner).await?;
        let Some((ticket, other)) = head else { return Ok(None) };
        self.wake(conn, other);
        Ok(ticket)
    }

    async fn due_waiters(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<Vec<i64>> {
        let client = conn.client();
        let mut follow_up = FollowUp::default();
        let called: Vec<(i64, Uuid)> = loop {
            let called = self.sql.due_waiters.call().bind(name).bind(client).rows(&mut conn.inner).await;
            if let Some(called) = follow_up.settle(self, called) {
                break called?;
            }
        };
        let (ours, others): (Vec<_>, Vec<_>) = called.into_iter().partition(|(_, whose)| *whose == client);
        let others: BTreeSet<Uuid> = others.into_iter().map(|(_, whose)| whose).collect();
        self.wake(conn, others);
        Ok(ours.into_iter().map(|(ticket, _)| ticket).collect())
    }
}
