//! How a claim takes a lock alone on SQLite.

use lockwell_core::Claim;
use sqlx_core::row::Row;
use sqlx_sqlite::{SqliteConnection, SqliteRow};

use super::bounds::Answers;
use super::connection::{Bound, Connection};
use super::driver::{Sqlite, json, owners};
use super::plan::{Asked, Step, plan};
use super::wake::left_of;
use crate::dialect::hints::Hint;
use crate::ids::AsUuid;
use crate::words::{Hold, NO_TICKET, TakeRequest, TryAcquire, block, micros, span, token};

/// The state of a lock, as one claim sees it.
pub(super) struct LockState {
    in_use: Option<i64>,
    left: Option<i64>,
    /// The token of this claim, if it was the last to take the lock exclusively.
    mine: Option<i64>,
    /// Whether the state of the tables allows a grant.
    may_grant: bool,
    /// For how long it forbids all grants.
    closed_for: Option<i64>,
    bound: Option<i64>,
}

/// Why a claim has no grant.
pub(super) enum Refusal {
    /// `None`: the state of the tables must be raised first.
    Is(Option<TryAcquire>),
    /// The state of the tables was raised after the claim was refused, perhaps by another process. The lock may
    /// be free, so the claim asks again.
    Unknown,
}

impl LockState {
    pub(super) fn from_row(row: &SqliteRow) -> sqlx_core::Result<Self> {
        Ok(Self {
            in_use: row.try_get(0)?,
            left: row.try_get(1)?,
            mine: row.try_get(2)?,
            may_grant: row.try_get(3)?,
            closed_for: row.try_get(4)?,
            bound: row.try_get(6)?,
        })
    }

    /// The refusal of a claim that wants the lock exclusively, where no statement that writes is needed to
    /// refuse it.
    pub(super) fn refused(&self, request: &TakeRequest) -> Option<TryAcquire> {
        let is_refused = self.mine.is_none() && self.in_use.is_some() && self.may_grant;
        (is_refused && Hold::of(&request.claim) == Hold::Alone).then(|| self.answer())
    }

    fn answer(&self) -> TryAcquire {
        TryAcquire::refused(self.in_use, self.left)
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

    /// What a claim is answered without a statement that writes.
    async fn known(
        &self,
        conn: &mut Connection,
        request: &TakeRequest,
    ) -> sqlx_core::Result<Option<TryAcquire>> {
        let asked = Asked::Take { has_place: request.ticket != NO_TICKET };
        if plan(asked, self.hints.of(request.claim.name()))[0] == Step::Take {
            return Ok(None);
        }
        let state = self.lock_state(conn.get(), request).await?;
        // The tables must know its lease first, which may be longer than all before: the holder renews it to
        // that.
        if let Some(handed) = state.handed_over(request).filter(|_| state.may_grant) {
            return Ok(Some(handed));
        }
        let refused = state.refused(request);
        if refused.is_some() {
            self.hints.note(Hint::Waited, request.claim.name());
        }
        Ok(refused)
    }

    /// Takes each of these locks that is free, with one statement that writes. Returns the tokens.
    async fn take_free(
        &self,
        conn: &mut Connection,
        requests: &[&TakeRequest],
    ) -> sqlx_core::Result<Vec<Option<i64>>> {
        if let [TakeRequest { claim, ticket, .. }] = requests {
            let take = conn.write_several(&self.sql.take, 2, |query| {
                self.asked(query, claim).bind(claim.label()).bind(ticket)
            });
            let token = take.await?.rows.first().map(|row| row.try_get(0)).transpose()?;
            return Ok(vec![token]);
        }
        let mut tokens = vec![None; requests.len()];
        if requests.is_empty() {
            return Ok(tokens);
        }
        let asked: Vec<_> = requests
            .iter()
            .map(|TakeRequest { claim, ticket, .. }| {
                (claim.name().as_str(), micros(claim.ttl()), block(claim), claim.label(), ticket)
            })
            .collect();
        let (asked, owners) = (json(&asked)?, owners(requests.iter().map(|request| &request.claim)));
        let boot = &self.opening.durability.boot;
        let take =
            conn.write_several(&self.sql.take_batch, 2, |query| query.bind(&asked).bind(&owners).bind(boot));
        for row in take.await?.rows {
            let place: i64 = row.try_get(0)?;
            if let Some(token) = usize::try_from(place).ok().and_then(|place| tokens.get_mut(place)) {
                *token = Some(row.try_get(1)?);
            }
        }
        Ok(tokens)
    }

    /// Why a claim has no grant.
    pub(super) async fn refused(
        &self,
        conn: &mut Connection,
        request: &TakeRequest,
    ) -> sqlx_core::Result<Refusal> {
        let state = self.lock_state(conn.get(), request).await?;
        let is_known = conn.is_known(state.bound);
        Ok(if is_known { Refusal::Is(self.note_refused(request, &state)) } else { Refusal::Unknown })
    }

    fn note_refused(&self, request: &TakeRequest, state: &LockState) -> Option<TryAcquire> {
        if let Some(left) = state.closed_for {
            return Some(TryAcquire::Closed(span(left)));
        }
        state.may_grant.then(|| {
            self.hints.note(Hint::Waited, request.claim.name());
            state.answer()
        })
    }

    async fn lock_state(
        &self,
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx_core::Result<LockState> {
        let query = self.asked(sqlx_core::query::query(self.sql.lock_state.get()), &request.claim);
        LockState::from_row(&query.bind(request.ticket).fetch_one(conn).await?)
    }

    pub(super) async fn take_all(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Answers> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(self.known(conn, request).await?);
        }
        let mut open: Vec<usize> = (0..requests.len()).filter(|&at| answers[at].is_none()).collect();
        while !open.is_empty() {
            let asked: Vec<_> = open.iter().map(|&at| &requests[at]).collect();
            let tokens = self.take_free(conn, &asked).await?;
            let mut unknown = Vec::new();
            for (at, number) in std::mem::take(&mut open).into_iter().zip(tokens) {
                if let Some(number) = number {
                    answers[at] = Some(TryAcquire::Granted(token(number)));
                    continue;
                }
                match self.refused(conn, &requests[at]).await? {
                    Refusal::Is(answer) => answers[at] = answer,
                    Refusal::Unknown => unknown.push(at),
                }
            }
            open = unknown;
        }
        Ok(answers.into_iter().collect())
    }
}
