//! The requests about groups on MySQL.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant, LockName, Mode};
use uuid::Uuid;

use super::batches::{begin, end};
use super::call::{Call, Statement};
use super::contended::Contention;
use super::driver::{Conn, MySql};
use super::rows::Rows;
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::groups::Groups;
use crate::ids::AsUuid;
use crate::words::{Freed, Hold, NO_TICKET, TakeRequest, TryAcquire, block, micros, token};

/// How often a claim is repeated that was refused although its lock was free afterwards.
const AGAIN: usize = 3;

/// The head of a queue: its ticket if it waits in this process, or its client if it waits in another.
type Head = (Option<i64>, Option<Uuid>);

/// The key of a member's row.
type Member = (Vec<u8>, Uuid);

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
            *tried = self.contended.contention(request.claim.name()) == Contention::None
                || self.may_join(conn, request).await?;
        }
        let mut answers = vec![None; requests.len()];
        if tried.contains(&true) {
            begin(conn).await?;
            let join = if overdue { &self.sql.join_overdue } else { &self.sql.join };
            let joined = self.join_each(conn, requests, &tried, join).await;
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
                    self.sql.make.call().bind(request.claim.name()).execute(&mut conn.inner).await?;
                }
            } else if state.in_use != Some(request.claim.mode().code())
                || !tried[at]
                || !self.may_join(conn, request).await?
            {
                self.contended.note(request.claim.name(), Contention::Held);
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

    /// Returns the indexes and tokens of the claims that became members.
    async fn join_each(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
        tried: &[bool],
        join: &Statement,
    ) -> sqlx::Result<Vec<(usize, i64)>> {
        let mut joined = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate().filter(|(at, _)| tried[*at]) {
            let done = joining(join, &request.claim).execute(&mut conn.inner).await?;
            if done.rows_affected() > 0 {
                joined.push((at, done.last_insert_id().cast_signed()));
            }
        }
        if joined.is_empty() {
            return Ok(joined);
        }
        let granted = Rows::of_granted(joined.iter().map(|&(at, token)| (&requests[at].claim, token)))?;
        self.sql.insert_members.call().bind(granted.json()).execute(&mut conn.inner).await?;
        if joined.iter().any(|&(at, _)| requests[at].ticket != NO_TICKET) {
            self.sql.forget_all.call().bind(granted.json()).execute(&mut conn.inner).await?;
        }
        Ok(joined)
    }

    async fn members(
        &self,
        conn: &mut Conn,
        statement: &Statement,
        rows: &Rows,
    ) -> sqlx::Result<Vec<Member>> {
        statement.call().bind(rows.json()).rows(&mut conn.inner).await
    }

    /// Removes members from their groups: those that the statement `lock` finds and locks.
    async fn remove(
        &self,
        conn: &mut Conn,
        members: &[Member],
        lock: &Statement,
    ) -> sqlx::Result<Vec<Member>> {
        if members.is_empty() {
            return Ok(Vec::new());
        }
        begin(conn).await?;
        let removed = self.remove_found(conn, &Rows::of_members(members)?, lock).await;
        end(conn, removed).await
    }

    async fn remove_found(
        &self,
        conn: &mut Conn,
        rows: &Rows,
        lock: &Statement,
    ) -> sqlx::Result<Vec<Member>> {
        self.sql.lock.call().bind(rows.json()).execute(&mut conn.inner).await?;
        let found = self.members(conn, lock, rows).await?;
        let gone = Rows::of_members(&found)?;
        self.sql.delete_members.call().bind(gone.json()).execute(&mut conn.inner).await?;
        let mut counts: BTreeMap<&[u8], i64> = BTreeMap::new();
        for (name, _) in &found {
            *counts.entry(name).or_default() += 1;
        }
        for (name, many) in counts {
            self.sql.shrink.call().bind(name).bind(many).execute(&mut conn.inner).await?;
        }
        Ok(found)
    }

    /// Frees locks that groups hold whose members have no rows: somebody has changed them from outside.
    async fn free_empty_groups(&self, conn: &mut Conn, names: &[LockName]) -> sqlx::Result<()> {
        let empty = self.sql.empty_groups.call().bind(Rows::of_names(names.iter())?.json());
        let empty: Vec<Vec<u8>> = empty.values(&mut conn.inner).await?;
        for name in empty.iter().filter_map(|name| name_of(name)) {
            begin(conn).await?;
            let freed = self.free_empty_group(conn, &name).await;
            end(conn, freed).await?;
        }
        Ok(())
    }

    /// Looks again once the row is locked: a claim may have joined.
    async fn free_empty_group(&self, conn: &mut Conn, name: &LockName) -> sqlx::Result<()> {
        let count: Option<i64> = self.sql.count.call().bind(name).value(&mut conn.inner).await?;
        let Some(count) = count else { return Ok(()) };
        let empty = self.sql.empty_groups.call().bind(Rows::of_names(std::iter::once(name))?.json());
        if empty.values::<Vec<u8>>(&mut conn.inner).await?.is_empty() {
            return Ok(());
        }
        self.sql.shrink.call().bind(name).bind(count).execute(&mut conn.inner).await.map(drop)
    }

    async fn downgrade_rows(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let (name, owner) = (claim.name(), claim.owner().as_uuid());
        let shared = Mode::Shared.code();
        let mine: Option<i64> = self.sql.mine.call().bind(name).bind(owner).value(&mut conn.inner).await?;
        let rows = Rows::of_members(&[member(claim)])?;
        if mine.is_none() {
            let found = self.members(conn, &self.sql.are_members, &rows).await?;
            return Ok(!found.is_empty());
        }
        self.sql.downgrade.call().bind(name).bind(shared).execute(&mut conn.inner).await?;
        self.sql.downgraded.call().bind(name).bind(shared).execute(&mut conn.inner).await?;
        // The row of a grant by a release is not needed any more.
        self.sql.forget_all.call().bind(rows.json()).execute(&mut conn.inner).await?;
        Ok(true)
    }
}

fn member(claim: &Claim) -> Member {
    (claim.name().as_str().into(), claim.owner().as_uuid())
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
            members = self.members(conn, &self.sql.are_members, &Rows::of_members(&members)?).await?;
        }
        let gone = self.remove(conn, &members, &self.sql.lock_members).await?;
        let gone: HashSet<Uuid> = gone.into_iter().map(|(_, owner)| owner).collect();
        let released: Vec<bool> =
            claims.iter().map(|claim| gone.contains(&claim.owner().as_uuid())).collect();
        // A late copy of the request of a claim that is no member any more may have taken a place. For an
        // exclusive claim, the release of its lock has deleted that.
        let lost: Vec<Member> = claims
            .iter()
            .zip(&released)
            .filter(|(claim, released)| !**released && Hold::of(claim) == Hold::Together)
            .map(|(claim, _)| member(claim))
            .collect();
        if !lost.is_empty() {
            let rows = Rows::of_members(&lost)?;
            let forget = self.sql.forget_all.call().bind(rows.json());
            if let Err(error) = forget.execute(&mut conn.inner).await {
                return Err(if released.contains(&true) { in_doubt(error) } else { error });
            }
        }
        self.freed(conn, claims, &released, waiters).await
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName], waiters: &Waiters) -> sqlx::Result<Vec<i64>> {
        let dead = self.members(conn, &self.sql.dead, &Rows::of_names(names.iter())?).await?;
        self.remove(conn, &dead, &self.sql.lock_dead).await?;
        self.free_empty_groups(conn, names).await?;
        let mut next = Vec::new();
        for name in names {
            next.extend(self.next(conn, name, waiters).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<Vec<u8>> =
            self.sql.stale_groups.call().bind(micros(idle)).values(&mut conn.inner).await?;
        Ok(names.iter().filter_map(|name| name_of(name)).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, grant: &Grant) -> sqlx::Result<bool> {
        begin(conn).await?;
        let downgraded = self.downgrade_rows(conn, grant.claim()).await;
        end(conn, downgraded).await
    }

    async fn head(&self, conn: &mut Conn, name: &LockName, waiters: &Waiters) -> sqlx::Result<Option<i64>> {
        let head: Option<Head> =
            self.sql.next.call().bind(name).bind(waiters.client().as_uuid()).row(&mut conn.inner).await?;
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
        let client = waiters.client().as_uuid();
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
