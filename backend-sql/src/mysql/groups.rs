//! The requests about groups on MySQL.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use lockcore::backend::Waiters;
use lockcore::{Claim, LockName, Mode};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use uuid::Uuid;

use super::batches::{begin, end};
use super::contended::Contention;
use super::rows::Rows;
use super::{Conn, MySql};
use crate::dialect::{Freed, Hold, NO_TICKET, TakeRequest, TryAcquire, block, micros, token};
use crate::groups::Groups;
use crate::table::Sql;

/// How often a claim is repeated that was refused although its lock was free afterwards.
const AGAIN: usize = 3;

/// The head of a queue: its ticket if it waits in this process, or its client if it waits in another.
type Head = (Option<i64>, Option<Uuid>);

/// The key of a member's row.
type Member = (Vec<u8>, Uuid);

impl MySql {
    /// Adds claims to groups. `None`: the reason of the refusal is gone. `overdue`: also takes a lock whose lease has ended.
    async fn join_rows(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
        overdue: bool,
    ) -> sqlx::Result<Vec<Option<TryAcquire>>> {
        let mut tried = vec![false; requests.len()];
        for (request, tried) in requests.iter().zip(&mut tried) {
            *tried = self.contended.contention(request.claim.name()) == Contention::None
                || self.may_join(conn, request).await?;
        }
        let mut answers = vec![None; requests.len()];
        if tried.contains(&true) {
            begin(conn).await?;
            let sql = if overdue { &self.groups.join_overdue } else { &self.groups.join };
            let joined = self.join_each(conn, requests, &tried, sql).await;
            for (at, number) in end(conn, joined).await? {
                answers[at] = Some(TryAcquire::Granted(token(number)));
            }
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
                    let name = request.claim.name().as_str().as_bytes();
                    let make = sqlx::query(self.groups.make.get()).bind(name).bind(name);
                    make.execute(&mut conn.inner).await?;
                }
            } else if state.in_use != Some(request.claim.mode().code())
                || !tried[at]
                || !self.may_join(conn, request).await?
            {
                self.contended.note(request.claim.name(), Contention::Held);
                answers[at] = Some(state.answer(request));
            }
        }
        Ok(answers)
    }

    async fn may_join(&self, conn: &mut Conn, request: &TakeRequest) -> sqlx::Result<bool> {
        let query = conditions(sqlx::query(self.groups.may_join.get()), request);
        query.fetch_optional(&mut conn.inner).await.map(|found| found.is_some())
    }

    /// Returns the indexes and tokens of the claims that became members.
    async fn join_each(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
        tried: &[bool],
        sql: &Sql,
    ) -> sqlx::Result<Vec<(usize, i64)>> {
        let mut joined = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate().filter(|(at, _)| tried[*at]) {
            let claim = &request.claim;
            let name = claim.name().as_str().as_bytes();
            let query = sqlx::query(sql.get()).bind(block(claim)).bind(claim.mode().code()).bind(name);
            let done = conditions(query, request).execute(&mut conn.inner).await?;
            if done.rows_affected() > 0 {
                joined.push((at, done.last_insert_id().cast_signed()));
            }
        }
        if joined.is_empty() {
            return Ok(joined);
        }
        let rows = Rows::of_granted(joined.iter().map(|&(at, token)| (&requests[at].claim, token)))?;
        sqlx::query(self.groups.insert_members.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        if joined.iter().any(|&(at, _)| requests[at].ticket != NO_TICKET) {
            sqlx::query(self.groups.leave.get()).bind(rows.json()).execute(&mut conn.inner).await?;
        }
        Ok(joined)
    }

    async fn members(&self, conn: &mut Conn, statement: &Sql, rows: &Rows) -> sqlx::Result<Vec<Member>> {
        sqlx::query_as(statement.get()).bind(rows.json()).fetch_all(&mut conn.inner).await
    }

    /// Removes members from their groups: those that the statement `lock` finds and locks.
    async fn remove(&self, conn: &mut Conn, members: &[Member], lock: &Sql) -> sqlx::Result<Vec<Member>> {
        if members.is_empty() {
            return Ok(Vec::new());
        }
        begin(conn).await?;
        let removed = self.remove_found(conn, &Rows::of_members(members)?, lock).await;
        end(conn, removed).await
    }

    async fn remove_found(&self, conn: &mut Conn, rows: &Rows, lock: &Sql) -> sqlx::Result<Vec<Member>> {
        sqlx::query(self.groups.lock.get()).bind(rows.json()).fetch_all(&mut conn.inner).await?;
        let found = self.members(conn, lock, rows).await?;
        let gone = Rows::of_members(&found)?;
        sqlx::query(self.groups.delete_members.get()).bind(gone.json()).execute(&mut conn.inner).await?;
        let mut counts: BTreeMap<&[u8], i64> = BTreeMap::new();
        for (name, _) in &found {
            *counts.entry(name).or_default() += 1;
        }
        for (name, many) in counts {
            sqlx::query(self.groups.shrink.get())
                .bind(many)
                .bind(many)
                .bind(many)
                .bind(name)
                .execute(&mut conn.inner)
                .await?;
        }
        Ok(found)
    }

    async fn downgrade_rows(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let (name, owner) = (claim.name().as_str().as_bytes(), claim.owner().as_uuid());
        let shared = Mode::Shared.code();
        let mine: Option<i64> = sqlx::query_scalar(self.groups.mine.get())
            .bind(name)
            .bind(owner)
            .fetch_optional(&mut conn.inner)
            .await?;
        if mine.is_none() {
            let rows = Rows::of_members(&[member(claim)])?;
            let found = self.members(conn, &self.groups.members, &rows).await?;
            return Ok(!found.is_empty());
        }
        sqlx::query(self.groups.downgrade.get()).bind(shared).bind(name).execute(&mut conn.inner).await?;
        sqlx::query(self.groups.downgraded.get()).bind(shared).bind(name).execute(&mut conn.inner).await?;
        // Its place may not have been tidied up yet, and is not the last holder's any more.
        sqlx::query(self.sql.leave.get()).bind(owner).execute(&mut conn.inner).await?;
        Ok(true)
    }
}

fn member(claim: &Claim) -> Member {
    (claim.name().as_str().into(), claim.owner().as_uuid())
}

/// Binds what decides whether a claim may join.
fn conditions<'q>(
    query: Query<'q, sqlx::MySql, MySqlArguments>,
    request: &'q TakeRequest,
) -> Query<'q, sqlx::MySql, MySqlArguments> {
    let (name, mode) = (request.claim.name().as_str().as_bytes(), request.claim.mode().code());
    query
        .bind(name)
        .bind(mode)
        .bind(name)
        .bind(request.claim.owner().as_uuid())
        .bind(mode)
        .bind(name)
        .bind(request.ticket)
        .bind(name)
        .bind(request.ticket)
        .bind(mode)
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

    async fn leave_group(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut members: Vec<Member> = claims.iter().map(member).collect();
        if claims.iter().any(|claim| Hold::of(claim) == Hold::Alone) {
            // Few of these are members. The others have lost their locks, and must not wait for the rows.
            members = self.members(conn, &self.groups.members, &Rows::of_members(&members)?).await?;
        }
        let gone = self.remove(conn, &members, &self.groups.lock_members).await?;
        let gone: HashSet<Uuid> = gone.into_iter().map(|(_, owner)| owner).collect();
        let released: Vec<bool> =
            claims.iter().map(|claim| gone.contains(&claim.owner().as_uuid())).collect();
        self.freed(conn, claims, &released, waiters).await
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName], waiters: &Waiters) -> sqlx::Result<Vec<i64>> {
        let dead = self.members(conn, &self.groups.dead, &Rows::of_names(names.iter())?).await?;
        self.remove(conn, &dead, &self.groups.lock_dead).await?;
        let mut next = Vec::new();
        for name in names {
            next.extend(self.next(conn, name, waiters).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<Vec<u8>> = sqlx::query_scalar(self.groups.stale_groups.get())
            .bind(micros(idle))
            .fetch_all(&mut conn.inner)
            .await?;
        let name = |bytes| String::from_utf8(bytes).ok().and_then(|name| LockName::new(name).ok());
        Ok(names.into_iter().filter_map(name).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        begin(conn).await?;
        let downgraded = self.downgrade_rows(conn, claim).await;
        end(conn, downgraded).await
    }

    async fn head(&self, conn: &mut Conn, name: &LockName, waiters: &Waiters) -> sqlx::Result<Option<i64>> {
        let client = waiters.client();
        let head: Option<Head> = sqlx::query_as(self.sql.next.get())
            .bind(client)
            .bind(client)
            .bind(name.as_str().as_bytes())
            .fetch_optional(&mut conn.inner)
            .await?;
        let Some((ticket, other)) = head else { return Ok(None) };
        self.wake(conn, other);
        Ok(ticket)
    }

    async fn due_waiters(
        &self,
        conn: &mut Conn,
        name: &LockName,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let (name, client) = (name.as_str().as_bytes(), waiters.client());
        let due: Vec<(i64, Uuid)> = sqlx::query_as(self.groups.due_waiters.get())
            .bind(name)
            .bind(name)
            .bind(name)
            .bind(client)
            .fetch_all(&mut conn.inner)
            .await?;
        let (ours, others): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, whose)| *whose == client);
        let others: BTreeSet<Uuid> = others.into_iter().map(|(_, whose)| whose).collect();
        self.wake(conn, others);
        Ok(ours.into_iter().map(|(ticket, _)| ticket).collect())
    }
}
