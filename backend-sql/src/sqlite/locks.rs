//! The requests about exclusive locks and about the queue on SQLite.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{PLACE_TTL, PushedGrant, Waiters, unique_bits};
use lockwell_core::{Claim, Grant, LockName, LockStatus, Moment};
use sqlx::Row;
use uuid::Uuid;

use super::bounds::{RAISES, not_raised};
use super::connection::Connection;
use super::driver::{Sqlite, json, owners};
use super::plan::{Asked, Step, plan};
use super::take::LockState;
use super::wake::provisional;
use crate::dialect::Dialect;
use crate::dialect::groups::Groups;
use crate::dialect::hints::{Hint, Hints};
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::dialect::tickets::TicketQueue;
use crate::ids::AsUuid;
use crate::lock::tickets;
use crate::words::{
    Extension, Forced, Freed, Hold, HolderRow, NO_TICKET, PORTION, Portion, SEVERAL, TakeRequest, TryAcquire,
    WaitersRow, micros, status,
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
        plan(Asked::Release { waits: known.has(Hint::HandedOn) }, known)[0] == Step::ReleaseUnwaited
    }

    async fn queue(
        &self,
        conn: &mut Connection,
        _: &Waiters,
        batch: &[Arc<Request<Self>>],
    ) -> sqlx::Result<Vec<Answer>> {
        tickets::carry_out(self, conn, batch).await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn take(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Vec<TryAcquire>> {
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
    async fn release(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx::Result<Vec<Freed>> {
        self.release_each(conn, claims).await
    }

    async fn renew(
        &self,
        conn: &mut Connection,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx::Result<Vec<Extension>> {
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
        let renewed = sqlx::query_scalar(self.sql.renewed.of(hold).get()).bind(&rows).bind(&owners);
        let renewed: HashSet<Uuid> = renewed.fetch_all(conn.get()).await?.into_iter().collect();
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn leave_each(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx::Result<Vec<Freed>> {
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let left = conn.write(&self.sql.leave, |query| query.bind(claim.owner().as_uuid())).await?;
            // A separate statement: it sees all places that were taken before this claim left.
            answers.push(Freed::new(left.changed > 0, self.next(conn, claim.name()).await?));
        }
        Ok(answers)
    }

    async fn turns(&self, conn: &mut Connection, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(i64, Option<i64>)> = sqlx::query_as(self.sql.turns.get())
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

    async fn inspect(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<LockStatus> {
        let unknown_for = self.closed_for(conn).await?;
        let conn = conn.get();
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(name.as_str()).fetch_all(&mut *conn).await?;
        let waiters: WaitersRow =
            sqlx::query_as(self.sql.count_waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        Ok(status(name, holders, waiters).unknown_for(unknown_for))
    }

    async fn force_release(
        &self,
        conn: &mut Connection,
        name: &LockName,
        forced: &Forced,
    ) -> sqlx::Result<usize> {
        let earlier = forced.holders();
        if earlier.is_none() {
            let held = sqlx::query_as(self.sql.held.get()).bind(name.as_str()).bind(i64::MAX);
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

    async fn sweep(&self, conn: &mut Connection) -> sqlx::Result<Swept> {
        let dead_for = micros(PLACE_TTL);
        // Read first: a write would be seen by all who wait.
        let found = sqlx::query_as(self.sql.count_clients.get()).bind(dead_for);
        let (clients, more): (i64, bool) = found.fetch_one(conn.get()).await?;
        if more {
            conn.write(&self.sql.forget_dead, |query| query.bind(PORTION).bind(dead_for)).await?;
        }
        Ok(Swept { clients: clients.unsigned_abs(), more })
    }

    async fn purge(&self, conn: &mut Connection, idle: Duration, after: &str) -> sqlx::Result<Portion> {
        let last = sqlx::query_scalar(self.sql.portion.get()).bind(after).bind(PORTION);
        let Some(last): Option<String> = last.fetch_one(conn.get()).await? else {
            return Ok(Portion::default());
        };
        let purge = conn.write(&self.sql.purge, |query| query.bind(micros(idle)).bind(after).bind(&last));
        let gone = purge.await?.changed;
        Ok(Portion { gone, last: Some(last) })
    }
}

impl TicketQueue for Sqlite {
    async fn enqueue(
        &self,
        conn: &mut Connection,
        claim: &Claim,
        receives: bool,
    ) -> sqlx::Result<(i64, Option<TryAcquire>)> {
        // A release does not sync what it grants.
        let may_be_granted = receives && !self.opening.durability.syncs_grants;
        let lease = may_be_granted.then(|| provisional(claim)).flatten();
        let client = conn.client();
        let enqueued = conn
            .write_several(&self.sql.enqueue, 2, |query| {
                self.asked(query, claim)
                    .bind(client)
                    .bind(micros(PLACE_TTL))
                    .bind(claim.label())
                    .bind(claim.mode().code())
                    .bind(lease)
            })
            .await?;
        let [state] = enqueued.rows.as_slice() else { return Err(sqlx::Error::RowNotFound) };
        // Without a place it has the lock, and asks for it next. All such claims of a client register under
        // one number, and only the last one would be notified; but nobody sends a message to that number. One
        // that is refused, since its provisional lease has ended, has no place to keep, and enters again.
        let ticket: Option<i64> = state.try_get(5)?;
        let request = TakeRequest::new(claim, ticket.unwrap_or(NO_TICKET));
        let state = LockState::from_row(state)?;
        self.hints.note(Hint::Waited, claim.name());
        // Members whose leases have ended are removed by a request for the lock.
        let refused = state.refused(&request).filter(|refused| *refused != TryAcquire::Stale);
        if refused.is_none() {
            self.hints.forget(Hint::HandedOn, claim.name());
        }
        Ok((request.ticket, refused))
    }

    fn accept(&self, conn: &Connection, claim: &Claim, pushed: &PushedGrant) -> Option<(Moment, Moment)> {
        self.accepted(conn, claim, pushed)
    }

    async fn keep(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx::Result<Vec<bool>> {
        let asked = json(tickets)?;
        let kept =
            conn.write(&self.sql.keep_place, |query| query.bind(&asked).bind(micros(PLACE_TTL))).await?.rows;
        let kept: HashSet<i64> = kept.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        Ok(tickets.iter().map(|ticket| kept.contains(ticket)).collect())
    }

    async fn forget_places(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx::Result<()> {
        let tickets = json(tickets)?;
        conn.write(&self.sql.forget_place, |query| query.bind(&tickets)).await.map(|_| ())
    }
}
