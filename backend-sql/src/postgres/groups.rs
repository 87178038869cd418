//! The requests about groups on PostgreSQL.

use std::time::Duration;

use lockwell_core::{Claim, ErrorKind, Grant, LockName, Mode};

use super::driver::{Conn, Postgres, names, owners};
use super::grace::{Closed, LOOKS};
use super::statements::{ELSEWHERE, UNSEEN};
use crate::dialect::Dialect;
use crate::dialect::error::ours;
use crate::dialect::follow_up::FollowUp;
use crate::dialect::groups::Groups;
use crate::ids::AsUuid;
use crate::words::{Extension, Freed, Hold, TakeRequest, TryAcquire, micros, token};

/// Whether a row is missing, the token of a member, that of a new one, how the lock is in use, and the time
/// left.
type Joined = (bool, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl Postgres {
    async fn join_each(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
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
        let answer = |(request, (_, taken, made, in_use, left)): (&TakeRequest, Joined)| match (taken, made) {
            (Some(number), _) => TryAcquire::Member(token(number)),
            (_, Some(number)) => TryAcquire::Granted(token(number)),
            _ => TryAcquire::refused(&request.claim, in_use, left),
        };
        Ok(requests.iter().zip(rows).map(answer).collect())
    }

    async fn join_rows(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<Joined>> {
        let claims = requests.iter().map(|request| &request.claim);
        self.taking(&self.sql.join, claims).bind(mode.code()).rows(conn).await
    }

    /// Finds the next waiters of each of these queues, whose heads are known.
    pub(super) async fn behind_each(
        &self,
        conn: &mut Conn,
        heads: Vec<(String, Option<i64>)>,
    ) -> sqlx::Result<Vec<i64>> {
        let mut next = Vec::new();
        for (name, head) in heads {
            if let Ok(name) = LockName::new(name) {
                next.extend(self.behind_head(conn, &name, head).await?);
            }
        }
        Ok(next)
    }

    /// Finds the next waiters of a queue, and first its head if the statement may not have seen it.
    async fn behind_head(
        &self,
        conn: &mut Conn,
        name: &LockName,
        head: Option<i64>,
    ) -> sqlx::Result<Vec<i64>> {
        let head = if head == Some(UNSEEN) { self.head(conn, name).await? } else { head };
        self.behind(conn, name, head.filter(|head| *head != ELSEWHERE)).await
    }

    /// Finds the next waiters of each of these locks that can be taken.
    pub(super) async fn notify_heads(&self, conn: &mut Conn, names: Vec<&str>) -> sqlx::Result<Vec<i64>> {
        let heads = self.heads(conn, &names).await?;
        self.behind_each(conn, heads).await
    }

    /// The heads of the queues of these locks that can be taken. Those of other processes are notified.
    async fn heads(&self, conn: &mut Conn, names: &[&str]) -> sqlx::Result<Vec<(String, Option<i64>)>> {
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
    async fn leave_group_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<Freed> {
        let head: Option<Option<i64>> = self
            .statement(&self.sql.leave_group_one)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(conn.client())
            .value(&mut *conn)
            .await?;
        let Some(head) = head else { return Ok(Freed::default()) };
        Ok(Freed::new(true, self.behind_head(conn, claim.name(), head).await?))
    }

    /// Turns the one holder into a reader, unless that is done already. False: it holds nothing.
    async fn become_reader(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let done: Option<i64> = self
            .statement(&self.sql.downgrade)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(Mode::Shared.code())
            .value(&mut *conn)
            .await?;
        if done.is_some() {
            return Ok(true);
        }
        let member: Option<i64> = self
            .statement(&self.sql.member)
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .value(conn)
            .await?;
        Ok(member.is_some())
    }
}

impl Groups for Postgres {
    async fn join(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
        let mut tries = 0..LOOKS;
        loop {
            let joined = self.join_each(conn, mode, requests).await;
            match self.closed(conn, &joined, requests.iter().map(|request| &request.claim)).await? {
                Some(Closed::For(left)) => return Ok(vec![TryAcquire::Closed(left); requests.len()]),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return joined,
            }
        }
    }

    async fn leave_group(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx::Result<Vec<Freed>> {
        if let [claim] = claims {
            let mut answers = vec![self.leave_group_one(conn, claim).await?];
            self.doubt_denials(conn, &mut answers).await;
            return Ok(answers);
        }
        let gone: Vec<(i64, Option<i64>)> = self
            .statement(&self.sql.leave_group)
            .bind(names(claims.iter()))
            .bind(owners(claims.iter()))
            .bind(conn.client())
            .rows(&mut *conn)
            .await?;
        let mut answers = vec![Freed::default(); claims.len()];
        for (n, head) in gone {
            let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
            if let (Some(claim), Some(answer)) = (claims.get(at), answers.get_mut(at)) {
                let next = self.behind_head(conn, claim.name(), head).await?;
                *answer = Freed::new(true, next);
            }
        }
        self.doubt_denials(conn, &mut answers).await;
        Ok(answers)
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(String, Option<i64>)> =
            self.statement(&self.sql.reap).bind(asked).bind(conn.client()).rows(&mut *conn).await?;
        self.behind_each(conn, heads).await
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<String> =
            self.statement(&self.sql.stale_groups).bind(micros(idle)).values(conn).await?;
        Ok(names.iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, grant: &Grant) -> sqlx::Result<bool> {
        if self.become_reader(conn, grant.claim()).await? {
            return Ok(true);
        }
        if self.grace.is_none() {
            return Ok(false);
        }
        // The server may have lost the record. A renewal makes it again, unless the lock is lost.
        match self.renew(conn, Hold::Alone, std::slice::from_ref(grant)).await?[..] {
            [Extension::Extended] => self.become_reader(conn, grant.claim()).await,
            [Extension::Blocked] => {
                Err(ours(ErrorKind::Held, "a transaction has locked the row of this lock"))
            }
            _ => Ok(false),
        }
    }

    async fn head(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<Option<i64>> {
        let head = self.heads(conn, &[name.as_str()]).await?.pop();
        Ok(head.and_then(|(_, head)| head).filter(|head| *head != ELSEWHERE))
    }

    async fn due_waiters(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<Vec<i64>> {
        let mut follow_up = FollowUp::default();
        let due: Vec<Option<i64>> = loop {
            let notify = self.statement(&self.sql.due_waiters).bind(name.as_str()).bind(conn.client());
            let due = notify.values(&mut *conn).await;
            if let Some(due) = follow_up.settle(self, due) {
                break due?;
            }
        };
        Ok(due.into_iter().flatten().filter(|number| *number != ELSEWHERE).collect())
    }
}
