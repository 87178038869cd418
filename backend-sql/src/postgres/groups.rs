//! The requests about groups on PostgreSQL.

use lockwell_core::{Claim, Grant, LockName, Mode};

use super::driver::{Conn, Postgres, names};
use super::statements::{ELSEWHERE, UNSEEN};
use crate::dialect::Dialect;
use crate::dialect::follow_up::FollowUp;
use crate::dialect::groups::find_behind;
use crate::words::{Freed, TakeRequest, TryAcquire, token};

/// Whether a row is missing, the token of a member, that of a new one, how the lock is in use, and the time
/// left.
type Joined = (bool, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl Postgres {
    pub(super) async fn join_each(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        if let [TakeRequest { claim, .. }] = requests {
            let joined: Option<i64> =
                self.taking_one(&self.sql.join_one, claim).bind(mode.code()).value(&mut *conn).await?;
            if let Some(number) = joined {
                return Ok(vec![TryAcquire::Granted(token(number))]);
            }
        }
        // There are several claims, or one that was refused, is already a member, or has a lock without a
        // row.
        let mut rows = self.join_rows(conn, mode, requests).await?;
        if rows.iter().any(|(missing, ..)| *missing) {
            let new = requests.iter().zip(&rows).filter(|(_, (missing, ..))| *missing);
            let new = names(new.map(|(request, _)| &request.claim));
            self.make(conn, new).await?;
            rows = self.join_rows(conn, mode, requests).await?;
        }
        let answer = |(_, taken, made, in_use, left): Joined| match (taken, made) {
            (Some(number), _) => TryAcquire::Member(token(number)),
            (_, Some(number)) => TryAcquire::Granted(token(number)),
            _ => TryAcquire::refused(in_use, left),
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    pub(super) async fn join_rows(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<Joined>> {
        let claims = requests.iter().map(|request| &request.claim);
        self.taking(&self.sql.join, claims).bind(mode.code()).rows(conn).await
    }

    /// Finds the next waiters of each of these queues, whose heads are known.
    pub(super) async fn behind_each(
        &self,
        conn: &mut Conn,
        heads: Vec<(String, Option<i64>)>,
    ) -> sqlx_core::Result<Vec<i64>> {
        let mut next = Vec::new();
        for (name, head) in heads {
            if let Ok(name) = LockName::new(name) {
                next.extend(self.behind_head(conn, &name, head).await?);
            }
        }
        Ok(next)
    }

    /// Finds the next waiters of a queue, and first its head if the statement may not have seen it.
    pub(super) async fn behind_head(
        &self,
        conn: &mut Conn,
        name: &LockName,
        head: Option<i64>,
    ) -> sqlx_core::Result<Vec<i64>> {
        let head = if head == Some(UNSEEN) { self.head(conn, name).await? } else { head };
        find_behind(self, conn, name, head.filter(|head| *head != ELSEWHERE)).await
    }

    /// Finds the next waiters of each of these locks that can be taken.
    pub(super) async fn notify_heads(
        &self,
        conn: &mut Conn,
        names: Vec<&str>,
    ) -> sqlx_core::Result<Vec<i64>> {
        let heads = self.heads(conn, &names).await?;
        self.behind_each(conn, heads).await
    }

    /// The heads of the queues of these locks that can be taken. Those of other processes are notified.
    pub(super) async fn heads(
        &self,
        conn: &mut Conn,
        names: &[&str],
    ) -> sqlx_core::Result<Vec<(String, Option<i64>)>> {
        let mut follow_up = FollowUp::default();
        loop {
            let notify = self.statement(&self.sql.notify_heads).bind(names.to_vec()).bind(conn.client());
            let heads = notify.rows(&mut *conn).await;
            if let Some(heads) = follow_up.settle(self, heads) {
                return heads;
            }
        }
    }

    /// Removes one member from its group.
    pub(super) async fn leave_group_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Freed> {
        let head: Option<Option<i64>> =
            self.statement(&self.sql.leave_group_one).of(claim).bind(conn.client()).value(&mut *conn).await?;
        let Some(head) = head else { return Ok(Freed::default()) };
        Ok(Freed::new(true, self.behind_head(conn, claim.name(), head).await?))
    }

    /// Turns the one holder into a reader, unless that is done already. False: it holds nothing.
    pub(super) async fn become_reader(&self, conn: &mut Conn, grant: &Grant) -> sqlx_core::Result<bool> {
        let (claim, token) = (grant.claim(), grant.last_token().get().cast_signed());
        let downgrade = self.statement(&self.sql.downgrade).of(claim).bind(Mode::Shared.code()).bind(token);
        if downgrade.value::<i64>(&mut *conn).await?.is_some() {
            return Ok(true);
        }
        let member: Option<i64> = self.statement(&self.sql.member).of(claim).bind(token).value(conn).await?;
        Ok(member.is_some())
    }
}
