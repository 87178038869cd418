//! The requests about exclusive locks and about the queue on SQLite.

use std::collections::HashSet;
use std::time::Duration;

use lockwell_core::backend::{Hot, PLACE_TTL, PushedGrant, Waiters, unique_bits};
use lockwell_core::{Claim, Grant, LockName, LockStatus, Moment};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::bounds::{Answers, RAISES, not_raised};
use super::connection::{Bound, Connection};
use super::driver::{Sqlite, json, owners};
use super::wake::{left_of, provisional};
use super::write::Commits;
use crate::dialect::Dialect;
use crate::dialect::groups::Groups;
use crate::dialect::sweep::Swept;
use crate::dialect::tickets::{Entered, TicketQueue};
use crate::ids::AsUuid;
use crate::words::{
    Extension, Forced, Freed, Hold, HolderRow, LockRequest, NO_TICKET, PORTION, Portion, SEVERAL,
    TakeRequest, TryAcquire, WaitersRow, block, micros, span, status, token,
};

/// The state of a lock, as one claim sees it.
struct LockState {
    in_use: Option<i64>,
    left: Option<i64>,
    /// The token of this claim, if it was the last to take the lock exclusively.
    mine: Option<i64>,
    /// Whether the state of the tables allows a grant.
    may_grant: bool,
    /// For how long it forbids all grants.
    closed_for: Option<i64>,
}

impl LockState {
    fn from_row(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self {
            in_use: row.try_get(0)?,
            left: row.try_get(1)?,
            mine: row.try_get(2)?,
            may_grant: row.try_get(3)?,
            closed_for: row.try_get(4)?,
        })
    }

    /// The refusal of a claim that wants the lock exclusively, where no statement that writes is needed to
    /// refuse it.
    fn refused(&self, request: &TakeRequest) -> Option<TryAcquire> {
        let is_refused = self.mine.is_none() && self.in_use.is_some() && self.may_grant;
        (is_refused && Hold::of(&request.claim) == Hold::Alone).then(|| self.answer(request))
    }

    fn answer(&self, request: &TakeRequest) -> TryAcquire {
        TryAcquire::refused(&request.claim, self.in_use, self.left)
    }

    /// The grant that a release has made for this claim, if it has announced it.
    fn handed_over(&self, request: &TakeRequest) -> Option<TryAcquire> {
        let mine = token(self.mine?);
        let left = left_of(&request.claim, self.left?)?;
        (request.announced == Some(mine)).then_some(TryAcquire::HandedOver(mine, left))
    }
}

impl Sqlite {
    /// Binds the first parameters of a statement that takes a lock: what the claim asks for.
    pub(super) fn asked<'q>(&'q self, query: Bound<'q>, claim: &'q Claim) -> Bound<'q> {
        query
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(micros(claim.ttl()))
            .bind(block(claim))
            .bind(&self.opening.durability.boot)
    }

    async fn take_one(
        &self,
        conn: &mut Connection,
        request: &TakeRequest,
    ) -> sqlx::Result<Option<TryAcquire>> {
        let claim = &request.claim;
        // A lock that was found held lately is read first. One statement is then enough to refuse it, and it
        // does not block other writers.
        if request.ticket != NO_TICKET || self.hot.is_hot(claim.name()) {
            let state = self.lock_state(conn.get(), request).await?;
            // The tables must know its lease first, which may be longer than all before: the holder renews it
            // to that.
            if let Some(handed) = state.handed_over(request).filter(|_| state.may_grant) {
                return Ok(Some(handed));
            }
            if let Some(refused) = state.refused(request) {
                self.hot.note(claim.name());
                return Ok(Some(refused));
            }
        }
        let taken = conn
            .write_several(&self.sql.take, 2, |query| {
                self.asked(query, claim).bind(claim.label()).bind(request.ticket)
            })
            .await?;
        match taken.rows.as_slice() {
            [row] => Ok(Some(TryAcquire::Granted(token(row.try_get(0)?)))),
            _ => self.refused(conn.get(), request).await,
        }
    }

    /// Why a claim has no grant. `None`: the state of the tables must be raised first.
    pub(super) async fn refused(
        &self,
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx::Result<Option<TryAcquire>> {
        let state = self.lock_state(conn, request).await?;
        Ok(self.note_refused(request, &state))
    }

    fn note_refused(&self, request: &TakeRequest, state: &LockState) -> Option<TryAcquire> {
        if let Some(left) = state.closed_for {
            return Some(TryAcquire::Closed(span(left)));
        }
        state.may_grant.then(|| {
            self.hot.note(request.claim.name());
            state.answer(request)
        })
    }

    async fn lock_state(
        &self,
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx::Result<LockState> {
        let query = self.asked(sqlx::query(self.sql.lock_state.get()), &request.claim);
        LockState::from_row(&query.bind(request.ticket).fetch_one(conn).await?)
    }

    async fn take_each(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Answers> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            match self.take_one(&mut *conn, request).await? {
                Some(answer) => answers.push(answer),
                None => return Ok(None),
            }
        }
        Ok(Some(answers))
    }

    async fn take_together(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Answers> {
        if requests.len() == 1 {
            return self.take_each(conn, requests).await;
        }
        conn.begin(Commits::Granted).await?;
        let answers = self.take_each(conn, requests).await;
        conn.end(answers).await
    }

    /// Frees a lock. Returns the number of holders.
    async fn force(
        &self,
        conn: &mut SqliteConnection,
        name: &LockName,
        forced: &Forced,
    ) -> sqlx::Result<usize> {
        let held = sqlx::query_as(self.sql.held.get()).bind(name.as_str()).bind(forced.up_to());
        let held: Option<(i64, i64)> = held.fetch_optional(&mut *conn).await?;
        // An earlier try, which failed after its commit, may have freed it.
        let Some((mode, number)) = held else { return Ok(forced.holders().unwrap_or(0)) };
        sqlx::query(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(unique_bits()))
            .execute(&mut *conn)
            .await?;
        let mut holders = 1;
        if mode != 0 {
            let alive: Vec<bool> =
                sqlx::query_scalar(self.sql.force_members.get()).bind(name.as_str()).fetch_all(conn).await?;
            holders = alive.into_iter().filter(|alive| *alive).count();
        }
        forced.note(number, holders);
        Ok(holders)
    }
}

impl Dialect for Sqlite {
    /// Each message is a transaction, which the thread of the connection carries out to its end. What a
    /// release sends to the next waiter after that must not be late.
    fn is_light(&self, _: &Connection, request: LockRequest<'_>) -> bool {
        let is_waited_for = |name| self.hot.is_hot(name) || self.handed_on.is_hot(name);
        !matches!(request, LockRequest::Release(claim) if is_waited_for(claim.name()))
    }

    async fn take(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Vec<TryAcquire>> {
        self.check_disk(conn).await?;
        for _ in 0..=RAISES {
            if let Some(answers) = self.take_together(conn, requests).await? {
                return Ok(answers);
            }
            self.raise(conn, requests).await?;
        }
        Err(not_raised())
    }

    // What a release grants to a waiter need not be synced, and each of these commits is `Written`.
    async fn release(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        self.release_each(conn, claims, waiters).await
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

    async fn leave_each(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let left = conn.write(&self.sql.leave, |query| query.bind(claim.owner().as_uuid())).await?;
            // A separate statement: it sees all places that were taken before this claim left.
            answers.push(Freed::new(left.changed > 0, self.next(conn, claim.name(), waiters).await?));
        }
        Ok(answers)
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
                // Waiters of others ask by themselves.
                match head {
                    Some(SEVERAL) => {
                        let due = self.due(conn, name).await?;
                        let ours = |(client, _): &(Uuid, i64)| *client == waiters.client().as_uuid();
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
        conn.begin(Commits::Granted).await?;
        let freed = self.force(conn.get(), name, forced).await;
        conn.end(freed).await
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
    fn handed_on(&self) -> &Hot {
        &self.handed_on
    }

    async fn enqueue(
        &self,
        conn: &mut Connection,
        claim: &Claim,
        client: Uuid,
        receives: bool,
    ) -> sqlx::Result<Entered> {
        // A release does not sync what it grants.
        let may_be_granted = receives && !self.opening.durability.syncs_grants;
        let lease = may_be_granted.then(|| provisional(claim)).flatten();
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
        self.hot.note(claim.name());
        // Members whose leases have ended are removed by a request for the lock.
        let refused = state.refused(&request).filter(|refused| *refused != TryAcquire::Stale);
        if refused.is_none() {
            self.handed_on.forget(claim.name());
        }
        Ok(Entered { ticket: request.ticket, refused })
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
