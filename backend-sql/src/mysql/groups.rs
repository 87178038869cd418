//! What MySQL is asked about locks that several hold together.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use lockcore::backend::Waiters;
use lockcore::{Claim, LockName, Mode};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use uuid::Uuid;

use super::batches::{begin, end};
use super::contended::Known;
use super::rows::Rows;
use super::{Conn, MySql};
use crate::dialect::{Ask, Freed, Hold, NO_TICKET, Took, block, micros, token};
use crate::groups::Groups;
use crate::table::Sql;

/// How often a claim is tried again that found its lock in use and then not so.
const AGAIN: usize = 3;

/// What is to be said to the head of a queue: its ticket here, or its client elsewhere.
type Head = (Option<i64>, Option<Uuid>);

/// The key of a member's row.
type Member = (Vec<u8>, Uuid);

impl MySql {
    /// `None`: what stood against it is gone by now.
    /// `overdue`: a lock whose lease has ended is taken, too.
    async fn join_rows(
        &self,
        conn: &mut Conn,
        asks: &[Ask],
        overdue: bool,
    ) -> sqlx::Result<Vec<Option<Took>>> {
        let mut tried = vec![false; asks.len()];
        for (ask, tried) in asks.iter().zip(&mut tried) {
            *tried =
                self.contended.known(ask.claim.name()) == Known::Nothing || self.may_join(conn, ask).await?;
        }
        let mut answers = vec![None; asks.len()];
        if tried.contains(&true) {
            begin(conn).await?;
            let sql = if overdue { &self.groups.join_overdue } else { &self.groups.join };
            let joined = self.join_each(conn, asks, &tried, sql).await;
            for (at, number) in end(conn, joined).await? {
                answers[at] = Some(Took::Granted(token(number)));
            }
        }
        let refused: Vec<usize> = (0..asks.len()).filter(|&at| answers[at].is_none()).collect();
        if refused.is_empty() {
            return Ok(answers);
        }
        let of: Vec<Ask> = refused.iter().map(|&at| asks[at].clone()).collect();
        for (at, standing) in refused.into_iter().zip(self.standing(conn, &Rows::of_asks(&of)?).await?) {
            let ask = &asks[at];
            if standing.is_free() {
                if !standing.known {
                    let name = ask.claim.name().as_str().as_bytes();
                    let make = sqlx::query(self.groups.make.get()).bind(name).bind(name);
                    make.execute(&mut conn.inner).await?;
                }
            } else if standing.in_use != Some(ask.claim.mode().code())
                || !tried[at]
                || !self.may_join(conn, ask).await?
            {
                self.contended.note(ask.claim.name(), Known::Taken);
                answers[at] = Some(standing.answer(ask));
            }
        }
        Ok(answers)
    }

    async fn may_join(&self, conn: &mut Conn, ask: &Ask) -> sqlx::Result<bool> {
        let query = conditions(sqlx::query(self.groups.may_join.get()), ask);
        query.fetch_optional(&mut conn.inner).await.map(|found| found.is_some())
    }

    /// Answers with the places and tokens of those who were let in.
    async fn join_each(
        &self,
        conn: &mut Conn,
        asks: &[Ask],
        tried: &[bool],
        sql: &Sql,
    ) -> sqlx::Result<Vec<(usize, i64)>> {
        let mut joined = Vec::with_capacity(asks.len());
        for (at, ask) in asks.iter().enumerate().filter(|(at, _)| tried[*at]) {
            let claim = &ask.claim;
            let name = claim.name().as_str().as_bytes();
            let query = sqlx::query(sql.get()).bind(block(claim)).bind(claim.mode().code()).bind(name);
            let done = conditions(query, ask).execute(&mut conn.inner).await?;
            if done.rows_affected() > 0 {
                joined.push((at, done.last_insert_id().cast_signed()));
            }
        }
        if joined.is_empty() {
            return Ok(joined);
        }
        let seats = Rows::of_granted(joined.iter().map(|&(at, token)| (&asks[at].claim, token)))?;
        sqlx::query(self.groups.seats.get()).bind(seats.json()).execute(&mut conn.inner).await?;
        if joined.iter().any(|&(at, _)| asks[at].ticket != NO_TICKET) {
            sqlx::query(self.groups.leave.get()).bind(seats.json()).execute(&mut conn.inner).await?;
        }
        Ok(joined)
    }

    async fn members(&self, conn: &mut Conn, statement: &Sql, rows: &Rows) -> sqlx::Result<Vec<Member>> {
        sqlx::query_as(statement.get()).bind(rows.json()).fetch_all(&mut conn.inner).await
    }

    /// Takes members out of their groups: those that `lock` finds and locks.
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
        sqlx::query(self.groups.part.get()).bind(gone.json()).execute(&mut conn.inner).await?;
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

    async fn step_down(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
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
    ask: &'q Ask,
) -> Query<'q, sqlx::MySql, MySqlArguments> {
    let (name, mode) = (ask.claim.name().as_str().as_bytes(), ask.claim.mode().code());
    query
        .bind(name)
        .bind(mode)
        .bind(name)
        .bind(ask.claim.owner().as_uuid())
        .bind(mode)
        .bind(name)
        .bind(ask.ticket)
        .bind(name)
        .bind(ask.ticket)
        .bind(mode)
}

impl Groups for MySql {
    async fn join(&self, conn: &mut Conn, _: Mode, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let mut answers = self.join_rows(conn, asks, false).await?;
        for _ in 0..AGAIN {
            let rest: Vec<usize> = (0..asks.len()).filter(|&at| answers[at].is_none()).collect();
            if rest.is_empty() {
                break;
            }
            let again: Vec<Ask> = rest.iter().map(|&at| asks[at].clone()).collect();
            for (at, answer) in rest.into_iter().zip(self.join_rows(conn, &again, true).await?) {
                answers[at] = answer;
            }
        }
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(Took::Busy(None))).collect())
    }

    async fn part(&self, conn: &mut Conn, claims: &[Claim], waiters: &Waiters) -> sqlx::Result<Vec<Freed>> {
        let mut members: Vec<Member> = claims.iter().map(member).collect();
        if claims.iter().any(|claim| Hold::of(claim) == Hold::Alone) {
            // Few of those are members. The others have lost their locks, and must not wait for the rows.
            members = self.members(conn, &self.groups.members, &Rows::of_members(&members)?).await?;
        }
        let gone = self.remove(conn, &members, &self.groups.parting).await?;
        let gone: HashSet<Uuid> = gone.into_iter().map(|(_, owner)| owner).collect();
        let released: Vec<bool> =
            claims.iter().map(|claim| gone.contains(&claim.owner().as_uuid())).collect();
        self.freed(conn, claims, &released, waiters).await
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName], waiters: &Waiters) -> sqlx::Result<Vec<i64>> {
        let dead = self.members(conn, &self.groups.dead, &Rows::of_names(names.iter())?).await?;
        self.remove(conn, &dead, &self.groups.reaped).await?;
        let mut next = Vec::new();
        for name in names {
            next.extend(self.next(conn, name, waiters).await?);
        }
        Ok(next)
    }

    async fn deserted(&self, conn: &mut Conn, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let names: Vec<Vec<u8>> = sqlx::query_scalar(self.groups.deserted.get())
            .bind(micros(idle))
            .fetch_all(&mut conn.inner)
            .await?;
        let name = |bytes| String::from_utf8(bytes).ok().and_then(|name| LockName::new(name).ok());
        Ok(names.into_iter().filter_map(name).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        begin(conn).await?;
        let stepped = self.step_down(conn, claim).await;
        end(conn, stepped).await
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

    async fn call(&self, conn: &mut Conn, name: &LockName, waiters: &Waiters) -> sqlx::Result<Vec<i64>> {
        let (name, client) = (name.as_str().as_bytes(), waiters.client());
        let called: Vec<(i64, Uuid)> = sqlx::query_as(self.groups.call.get())
            .bind(name)
            .bind(name)
            .bind(name)
            .bind(client)
            .fetch_all(&mut conn.inner)
            .await?;
        let (ours, others): (Vec<_>, Vec<_>) = called.into_iter().partition(|(_, whose)| *whose == client);
        let others: BTreeSet<Uuid> = others.into_iter().map(|(_, whose)| whose).collect();
        self.wake(conn, others);
        Ok(ours.into_iter().map(|(ticket, _)| ticket).collect())
    }
}
