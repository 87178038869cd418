//! The requests about groups on MySQL.

use lockwell_core::{Claim, LockName};
use sqlx_mysql::MySqlQueryResult;
use uuid::Uuid;

use super::batches::granted;
use super::call::{Statement, StatementCall, send_whole};
use super::driver::{Conn, MySql};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::hints::Hint;
use crate::words::{TakeRequest, TryAcquire, block, micros};

/// How often a claim is repeated that was refused although its lock was free afterwards.
pub(super) const AGAIN: usize = 3;
/// How many statements begin a transaction.
const BEGINS: usize = 2;
/// How many statements `join`, `leave_group` and `reap` have.
const STATEMENTS: usize = 4;
/// Which statement of `join` lets the claim in, and which of the others deletes rows of members.
const JOINS: usize = 0;
pub(super) const DELETES: usize = 1;

/// The head of a queue: its ticket if it waits in this process, or its client if it waits in another.
pub(super) type Head = (Option<i64>, Option<Uuid>);

impl MySql {
    /// Adds claims to groups. `None`: the reason of the refusal is gone. `overdue`: also takes a lock whose
    /// lease has ended.
    pub(super) async fn join_rows(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
        overdue: bool,
    ) -> sqlx_core::Result<Vec<Option<TryAcquire>>> {
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

    pub(super) async fn may_join(&self, conn: &mut Conn, request: &TakeRequest) -> sqlx_core::Result<bool> {
        let found: Option<i64> =
            joining(&self.sql.may_join_one, &request.claim).value(&mut conn.inner).await?;
        Ok(found.is_some())
    }

    /// Carries out calls of four statements each in one transaction, which is one message: a process that is
    /// stopped or cut off keeps no row locked. Returns what one statement of each call has done.
    pub(super) async fn together<'a>(
        &self,
        conn: &mut Conn,
        calls: impl ExactSizeIterator<Item = StatementCall<'a>>,
        which: usize,
    ) -> sqlx_core::Result<Vec<MySqlQueryResult>> {
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

pub(super) fn name_of(bytes: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// A statement that adds a claim to a group, or says whether it may join.
fn joining<'a>(statement: &'a Statement, claim: &Claim) -> StatementCall<'a> {
    statement
        .of(claim)
        .bind(block(claim))
        .bind(claim.mode().code())
        .bind(micros(claim.ttl()))
        .bind(claim.label())
}
