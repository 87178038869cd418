//! The requests about exclusive locks and about the queue on SQLite.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{PLACE_TTL, Waiters, unique_bits};
use lockwell_core::{Claim, Grant, LockName, LockStatus, Mode};
use sqlx_core::row::Row;
use uuid::Uuid;

use super::bounds::{RAISES, not_raised};
use super::connection::Connection;
use super::driver::{Sqlite, json, owners};
use super::groups::{DOWNGRADING, LEAVING, REAPING};
use super::plan::{Asked, Step, plan};
use crate::dialect::Dialect;
use crate::dialect::groups::{find_next, freed_each};
use crate::dialect::hints::{Hint, Hints};
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::ids::AsUuid;
use crate::words::{
    Extension, Forced, Freed, Hold, HolderRow, PORTION, Portion, SEVERAL, SHOWN, TakeRequest, TryAcquire,
    WaiterRow, micros, status,
};

/// How many statements force a release, with those that begin and end its transaction.
const FORCING: usize = 5;

fn as_count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

impl Dialect for Sqlite {
    /// Each message is a transaction, which the thread of the connection carries out to its end. What a
    /// release sends to the next waiter after that must not be late.
    fn is_light(&self, _: &Connection, request: &Request<Self>) -> bool {
        let Request::Release(claim) = request else { return true };
        let known = self.hints.of(claim.name());
        plan(Asked::Release { waits: known(Hint::HandedOn) }, known)[0] == Step::ReleaseUnwaited
    }

    async fn queue(
        &self,
        conn: &mut Connection,
        _: &Waiters,
        batch: &[Arc<Request<Self>>],
    ) -> sqlx_core::Result<Vec<Answer>> {
        self.places(conn, batch).await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn take(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        self.check_disk(conn).await?;
        for _ in 0..=RAISES {
            if let Some(answers) = self.take_all(conn, requests).await? {
                return Ok(answers);
            }
            self.raise(conn, requests).await?;
        }
        Err(not_raised())
    }

    // What a release grants to a waiter need not be synced, and each of these commits is `Written`.
    async fn release(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        self.release_each(conn, claims).await
    }

    async fn renew(
        &self,
        conn: &mut Connection,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx_core::Result<Vec<Extension>> {
        let rows: Vec<_> = grants
            .iter()
            .map(|grant| {
                let claim = grant.claim();
                (claim.name().as_str(), micros(claim.ttl()))
            })
            .collect();
        let rows = json(&rows)?;
        let owners = owners(grants.iter().map(Grant::claim));
        conn.look_at_disk().await?;
        // A row for each lease would have to be received while the file is locked.
        let renewed =
            conn.write(self.sql.renew.of(hold), |query| query.bind(&rows).bind(&owners)).await?.changed;
        if renewed == grants.len() as u64 {
            return Ok(vec![Extension::Extended; grants.len()]);
        }
        // An owner cannot have got its lock back since then.
        let renewed =
            sqlx_core::query_scalar::query_scalar(self.sql.renewed.of(hold).get()).bind(&rows).bind(&owners);
        let renewed: HashSet<Uuid> = renewed.fetch_all(conn.get()).await?.into_iter().collect();
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn leave_each(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let left = conn.write(&self.sql.leave, |query| query.bind(claim.owner().as_uuid())).await?;
            // A separate statement: it sees all places that were taken before this claim left.
            answers.push(Freed::new(left.changed > 0, find_next(self, conn, claim.name()).await?));
        }
        Ok(answers)
    }

    async fn turns(&self, conn: &mut Connection, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(i64, Option<i64>)> = sqlx_core::query_as::query_as(self.sql.turns.get())
            .bind(json(&asked)?)
            .bind(conn.client())
            .fetch_all(conn.get())
            .await?;
        let mut turns = Vec::new();
        for (at, head) in heads {
            if let Some(name) = usize::try_from(at).ok().and_then(|at| names.get(at)) {
                // Waiters of others ask by themselves.
                match head {
                    Some(SEVERAL) => {
                        let due = self.due(conn, name).await?;
                        let ours = |(client, _): &(Uuid, i64)| *client == conn.client();
                        turns.extend(due.into_iter().filter(ours).map(|(_, ticket)| ticket));
                    }
                    head => turns.extend(head),
                }
            }
        }
        Ok(turns)
    }

    async fn inspect(&self, conn: &mut Connection, name: &LockName) -> sqlx_core::Result<LockStatus> {
        let unknown_for = self.closed_for(conn).await?;
        let conn = conn.get();
        let holders: Vec<HolderRow> = sqlx_core::query_as::query_as(self.sql.holders.get())
            .bind(name.as_str())
            .fetch_all(&mut *conn)
            .await?;
        let waiters: Vec<WaiterRow> = sqlx_core::query_as::query_as(self.sql.first_waiters.get())
            .bind(name.as_str())
            .bind(SHOWN)
            .fetch_all(conn)
            .await?;
        Ok(status(name, holders, waiters).unknown_for(unknown_for))
    }

    async fn force_release(
        &self,
        conn: &mut Connection,
        name: &LockName,
        forced: &Forced,
    ) -> sqlx_core::Result<usize> {
        let earlier = forced.holders();
        if earlier.is_none() {
            let held = sqlx_core::query_as::query_as(self.sql.held.get()).bind(name.as_str()).bind(i64::MAX);
            let held: Option<(i64, i64)> = held.fetch_optional(conn.get()).await?;
            let Some((number, holders)) = held else { return Ok(0) };
            forced.note(number, as_count(holders));
        }
        let nobody = Uuid::from_u128(unique_bits());
        let force = conn.write_several(&self.sql.force, FORCING, |query| {
            query.bind(name.as_str()).bind(forced.up_to()).bind(nobody)
        });
        match force.await?.rows.first() {
            Some(row) => Ok(as_count(row.try_get(1)?)),
            // An earlier try, which failed after its commit, may have freed it.
            None => Ok(earlier.unwrap_or(0)),
        }
    }

    async fn sweep(&self, conn: &mut Connection) -> sqlx_core::Result<Swept> {
        let dead_for = micros(PLACE_TTL);
        // Read first: a write would be seen by all who wait.
        let found = sqlx_core::query_as::query_as(self.sql.count_clients.get()).bind(dead_for);
        let (clients, more): (i64, bool) = found.fetch_one(conn.get()).await?;
        if more {
            conn.write(&self.sql.forget_dead, |query| query.bind(PORTION).bind(dead_for)).await?;
        }
        Ok(Swept { clients: clients.unsigned_abs(), more })
    }

    async fn purge(&self, conn: &mut Connection, idle: Duration, after: &str) -> sqlx_core::Result<Portion> {
        let last = sqlx_core::query_scalar::query_scalar(self.sql.portion.get()).bind(after).bind(PORTION);
        let Some(last): Option<String> = last.fetch_one(conn.get()).await? else {
            return Ok(Portion::default());
        };
        let purge = conn.write(&self.sql.purge, |query| query.bind(micros(idle)).bind(after).bind(&last));
        let gone = purge.await?.changed;
        Ok(Portion { gone, last: Some(last) })
    }

    async fn join(
        &self,
        conn: &mut Connection,
        _: Mode,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        self.check_disk(conn).await?;
        for _ in 0..=RAISES {
            if let Some(answers) = self.join_each(conn, requests).await? {
                return Ok(answers);
            }
            self.raise(conn, requests).await?;
        }
        Err(not_raised())
    }

    async fn leave_group(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        let mut left = Vec::with_capacity(claims.len());
        for claim in claims {
            let (name, owner) = (claim.name().as_str(), claim.owner().as_uuid());
            let leave =
                conn.write_several(&self.sql.leave_group, LEAVING, |query| query.bind(name).bind(owner));
            left.push(leave.await?.changed > 0);
        }
        freed_each(self, conn, claims, &left).await
    }

    async fn reap(&self, conn: &mut Connection, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let mut next = Vec::new();
        for name in names {
            conn.write_several(&self.sql.reap, REAPING, |query| query.bind(name.as_str())).await?;
            next.extend(find_next(self, conn, name).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Connection, idle: Duration) -> sqlx_core::Result<Vec<LockName>> {
        let conn = conn.get();
        let names: Vec<String> = sqlx_core::query_scalar::query_scalar(self.sql.stale_groups.get())
            .bind(micros(idle))
            .fetch_all(conn)
            .await?;
        Ok(names.iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn downgrade(&self, conn: &mut Connection, grant: &Grant) -> sqlx_core::Result<bool> {
        let claim = grant.claim();
        let (name, owner) = (claim.name().as_str(), claim.owner().as_uuid());
        let shared = Mode::Shared.code();
        conn.write_several(&self.sql.downgrade, DOWNGRADING, |query| {
            query.bind(name).bind(owner).bind(shared)
        })
        .await?;
        // It may have been one before.
        Ok(self.member(conn.get(), claim).await?.is_some())
    }

    async fn head(&self, conn: &mut Connection, name: &LockName) -> sqlx_core::Result<Option<i64>> {
        let head = sqlx_core::query_as::query_as(self.sql.next.get()).bind(name.as_str());
        let head: Option<(i64, Uuid, i64)> = head.fetch_optional(conn.get()).await?;
        Ok(match head {
            Some((0, client, ticket)) => self.wake(conn, [(client, ticket)]).first().copied(),
            Some(_) => Some(SEVERAL),
            None => None,
        })
    }

    async fn due_waiters(&self, conn: &mut Connection, name: &LockName) -> sqlx_core::Result<Vec<i64>> {
        let due = self.due(conn, name).await?;
        Ok(self.wake(conn, due))
    }
}
