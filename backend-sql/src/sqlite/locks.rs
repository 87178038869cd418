//! The requests about exclusive locks and about the queue on SQLite.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters, unique_bits};
use lockcore::{Claim, Grant, LockName, LockStatus};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::connection::Connection;
use super::driver::{Sqlite, end, json};
use super::write::Commits;
use crate::dialect::Dialect;
use crate::dialect::groups::Groups;
use crate::dialect::sweep::Swept;
use crate::ids::AsUuid;
use crate::words::{
    Extension, Freed, Hold, HolderRow, NO_TICKET, PORTION, Portion, TakeRequest, TryAcquire, WaitersRow,
    block, micros, status, token,
};

/// The state of a lock, as one claim sees it.
struct LockState {
    in_use: Option<i64>,
    left: Option<i64>,
    is_mine: bool,
}

impl LockState {
    fn answer(&self, request: &TakeRequest) -> TryAcquire {
        TryAcquire::refused(&request.claim, self.in_use, self.left)
    }
}

impl Sqlite {
    async fn take_one(&self, conn: &mut Connection, request: &TakeRequest) -> sqlx::Result<TryAcquire> {
        let claim = &request.claim;
        // A lock that was found held lately is read first, unless the claim has been waiting for its turn.
        // One statement is then enough to refuse it, and it does not block other writers.
        if request.ticket == NO_TICKET && self.hot.is_hot(claim.name()) {
            let state = self.lock_state(conn.get(), request).await?;
            if !state.is_mine && state.answer(request) != TryAcquire::Busy(None) {
                return Ok(self.note_refused(request, &state));
            }
        }
        let taken = conn
            .write(&self.sql.take, |query| {
                query
                    .bind(claim.name().as_str())
                    .bind(claim.owner().as_uuid())
                    .bind(micros(claim.ttl()))
                    .bind(claim.label())
                    .bind(request.ticket)
                    .bind(block(claim))
            })
            .await?;
        match taken.rows.as_slice() {
            [row] => Ok(TryAcquire::Granted(token(row.try_get(0)?))),
            _ => self.refused(conn.get(), request).await,
        }
    }

    pub(super) async fn refused(
        &self,
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx::Result<TryAcquire> {
        let state = self.lock_state(conn, request).await?;
        Ok(self.note_refused(request, &state))
    }

    fn note_refused(&self, request: &TakeRequest, state: &LockState) -> TryAcquire {
        self.hot.note(request.claim.name());
        state.answer(request)
    }

    async fn lock_state(
        &self,
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx::Result<LockState> {
        let (in_use, left, is_mine) = sqlx::query_as(self.sql.lock_state.get())
            .bind(request.claim.name().as_str())
            .bind(request.ticket)
            .bind(request.claim.owner().as_uuid())
            .fetch_one(conn)
            .await?;
        Ok(LockState { in_use, left, is_mine })
    }

    async fn release_each(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut released = Vec::with_capacity(claims.len());
        for claim in claims {
            let (name, owner) = (claim.name().as_str(), claim.owner().as_uuid());
            let done = conn.write(&self.sql.release, |query| query.bind(name).bind(owner)).await?;
            released.push(done.changed > 0);
        }
        self.freed(conn, claims, &released, waiters).await
    }

    async fn take_each(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.take_one(&mut *conn, request).await?);
        }
        Ok(answers)
    }

    /// Frees a lock. Returns the number of holders.
    async fn force(&self, conn: &mut SqliteConnection, name: &LockName) -> sqlx::Result<usize> {
        let mode: Option<i64> =
            sqlx::query_scalar(self.sql.held.get()).bind(name.as_str()).fetch_optional(&mut *conn).await?;
        let Some(mode) = mode else { return Ok(0) };
        sqlx::query(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(unique_bits()))
            .execute(&mut *conn)
            .await?;
        if mode == 0 {
            return Ok(1);
        }
        let alive: Vec<bool> =
            sqlx::query_scalar(self.sql.force_members.get()).bind(name.as_str()).fetch_all(conn).await?;
        Ok(alive.into_iter().filter(|alive| *alive).count())
    }
}

impl Dialect for Sqlite {
    async fn take(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Vec<TryAcquire>> {
        if requests.len() == 1 {
            return self.take_each(conn, requests).await;
        }
        conn.begin(Commits::Synced).await?;
        let answers = self.take_each(conn, requests).await;
        end(conn.get(), answers).await
    }

    // If a release granted the lock to the next waiter in the same step, this would have to be `Synced`.
    async fn release(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        if claims.len() == 1 {
            return self.release_each(conn, claims, waiters).await;
        }
        conn.begin(Commits::Written).await?;
        let answers = self.release_each(conn, claims, waiters).await;
        end(conn.get(), answers).await
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
                let owner = claim.owner().as_uuid().simple().to_string();
                (claim.name().as_str(), owner, micros(claim.ttl()))
            })
            .collect();
        let rows = json(&rows)?;
        let renewed = conn.write(self.sql.renew.of(hold), |query| query.bind(rows)).await?.rows;
        let renewed: HashSet<Uuid> = renewed.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn enqueue(&self, conn: &mut Connection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let enqueued = conn
            .write(&self.sql.enqueue, |query| {
                query
                    .bind(claim.name().as_str())
                    .bind(claim.owner().as_uuid())
                    .bind(client)
                    .bind(micros(PLACE_TTL))
                    .bind(claim.label())
                    .bind(claim.mode().code())
            })
            .await?;
        enqueued.rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }

    async fn keep(&self, conn: &mut Connection, places: &[(i64, Uuid)]) -> sqlx::Result<Vec<bool>> {
        let tickets: Vec<_> = places.iter().map(|(ticket, _)| *ticket).collect();
        let asked = json(&tickets)?;
        let kept =
            conn.write(&self.sql.keep_place, |query| query.bind(asked).bind(micros(PLACE_TTL))).await?.rows;
        let kept: HashSet<i64> = kept.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        Ok(tickets.iter().map(|ticket| kept.contains(ticket)).collect())
    }

    async fn forget_places(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx::Result<()> {
        let tickets = json(tickets)?;
        conn.write(&self.sql.forget_place, |query| query.bind(tickets)).await.map(|_| ())
    }

    async fn leave(&self, conn: &mut Connection, claim: &Claim) -> sqlx::Result<bool> {
        let left = conn.write(&self.sql.leave, |query| query.bind(claim.owner().as_uuid())).await?;
        Ok(left.changed > 0)
    }

    async fn turns(
        &self,
        conn: &mut Connection,
        waiters: &Waiters,
        names: &[LockName],
    ) -> sqlx::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(i64, Option<i64>)> = sqlx::query_as(self.sql.turns.get())
            .bind(json(&asked)?)
            .bind(waiters.client().as_uuid())
            .fetch_all(conn.get())
            .await?;
        let mut turns = Vec::new();
        for (at, head) in heads {
            if let Some(name) = usize::try_from(at).ok().and_then(|at| names.get(at)) {
                turns.extend(self.behind(conn, name, head, waiters).await?);
            }
        }
        Ok(turns)
    }

    async fn inspect(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<LockStatus> {
        let conn = conn.get();
        let holders: Vec<HolderRow> =
            sqlx::query_as(self.sql.holders.get()).bind(name.as_str()).fetch_all(&mut *conn).await?;
        let waiters: WaitersRow =
            sqlx::query_as(self.sql.count_waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<usize> {
        let conn = conn.begin(Commits::Synced).await?;
        let freed = self.force(conn, name).await;
        end(conn, freed).await
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
