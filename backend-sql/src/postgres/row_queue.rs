//! The queue of a lock in its own row: see `row_queue.sql`.

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, LockName};
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::driver::{Postgres, names, owners};
use super::statements::SHORT_LABEL;
use crate::dialect::follow_up::FollowUp;
use crate::ids::AsUuid;
use crate::words::{Hold, QueueRow, QueuedClaim, Sign, TryAcquire, block, micros, token};

/// The token; the time left of the lease; whether to ask again; the server's clock; whether the answer is
/// durable; and whether there is one.
type ClaimedRow = (Option<i64>, Option<i64>, bool, i64, bool, bool);

/// Whether there is an answer; the notification for a waiter of this client; whether to look again; and whether
/// the answer is durable.
pub(super) type HandedRow = (bool, Option<String>, bool, bool);

/// What a claim in a row is told: the answer, and the server's clock if it has a place.
pub(super) type InRow = (TryAcquire, Option<u64>);

fn answer(claim: &Claim, (taken, left, again, now, _, done): ClaimedRow) -> Option<InRow> {
    match taken {
        Some(number) => Some((TryAcquire::Granted(token(number)), None)),
        None if !done || again => None,
        None => Some((TryAcquire::refused(claim, Some(0), left), Some(now.cast_unsigned()))),
    }
}

impl Postgres {
    /// Whether the queue of this lock may be in its row. Behind a pooler no release grants a lock, since nobody
    /// would hear of it.
    pub(super) fn tries_row(&self, name: &LockName) -> bool {
        !self.pooled && !self.session.is_shared() && !self.queues.is_in_table(name)
    }

    /// The provisional lease of a place that a row can have.
    fn lease_in_row(claim: &Claim, row: &QueueRow) -> Option<i64> {
        let fits = Hold::of(claim) == Hold::Alone && claim.label().len() <= SHORT_LABEL;
        row.lease.filter(|_| fits).map(micros)
    }

    /// Takes a lock, or a place in its row. `None`: the queue is not there, or is not for this claim.
    pub(super) async fn claim_in_row(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        (row, sign): (QueueRow, Sign),
    ) -> sqlx::Result<Option<InRow>> {
        let Some(lease) = Self::lease_in_row(claim, &row) else { return Ok(None) };
        // The second one, if the lock was freed while the first one took the place.
        for _ in 0..2 {
            let claimed: Option<ClaimedRow> = self
                .statement(&self.sql.claim_row)
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(block(claim))
                .bind(sign.client)
                .bind(row.number)
                .bind(sign.number.cast_signed())
                .bind(lease)
                .row(&mut *conn)
                .await?;
            let Some(claimed) = claimed else { break };
            if let Some(answer) = answer(claim, claimed) {
                return Ok(Some(answer));
            }
        }
        self.queues.note(claim.name(), true);
        Ok(None)
    }

    /// The same for several claims, in one statement: for the first of each lock.
    pub(super) async fn claim_in_rows(
        &self,
        conn: &mut PgConnection,
        entries: &[QueuedClaim],
        sign: Sign,
    ) -> sqlx::Result<Vec<Option<InRow>>> {
        let mut answers = vec![None; entries.len()];
        let mut some: Vec<(usize, &Claim, i64, i64)> = Vec::new();
        for (at, QueuedClaim { claim, row }) in entries.iter().enumerate() {
            let is_first = some.iter().all(|(_, other, ..)| other.name() != claim.name());
            if let Some(lease) =
                Self::lease_in_row(claim, row).filter(|_| is_first && self.tries_row(claim.name()))
            {
                some.push((at, claim, row.number, lease));
            }
        }
        if some.is_empty() {
            return Ok(answers);
        }
        let claims = || some.iter().map(|(_, claim, ..)| *claim);
        let claimed: Vec<ClaimedRow> = self
            .taking(&self.sql.claim_row_many, claims())
            .bind(sign.client)
            .bind(some.iter().map(|(_, _, number, _)| *number).collect::<Vec<_>>())
            .bind(sign.number.cast_signed())
            .bind(some.iter().map(|(.., lease)| *lease).collect::<Vec<_>>())
            .rows(conn)
            .await?;
        for ((at, claim, ..), claimed) in some.iter().zip(claimed) {
            answers[*at] = answer(claim, claimed);
            if answers[*at].is_none() {
                self.queues.note(claim.name(), true);
            }
        }
        Ok(answers)
    }

    /// Frees several locks, and grants each to the first waiter in its row.
    pub(super) async fn hand_rows(
        &self,
        conn: &mut PgConnection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<HandedRow>> {
        let none = || claims.iter().map(|_| (false, None, false, false)).collect();
        if !claims.iter().any(|claim| self.tries_row(claim.name())) {
            return Ok(none());
        }
        let many = &self.sql.hand_row_many;
        let bound = many.call().bind(names(claims.iter())).bind(owners(claims.iter()));
        let handed = self.commit_and_notify(&mut *conn, many, bound.bind(waiters.client().as_uuid())).await;
        if self.closed(conn, &handed, claims.iter()).await?.is_some() {
            return Ok(none());
        }
        handed
    }

    /// Moves the places that are in the rows of these locks into the table.
    pub(super) async fn spill(&self, conn: &mut PgConnection, names: Vec<&str>) -> sqlx::Result<()> {
        self.statement(&self.sql.spill).bind(names).execute(conn).await.map(drop)
    }

    /// Moves the first places of a lock that was handed over into its row. It follows a release.
    pub(super) async fn refill(&self, conn: &mut PgConnection, name: &LockName) -> sqlx::Result<()> {
        if self.pooled || self.session.is_shared() || !self.queues.may_refill() {
            return Ok(());
        }
        self.queues.note(name, false);
        let refilled = self.statement(&self.sql.refill).bind(name.as_str()).execute(conn).await;
        refilled.map(drop).or_else(|error| FollowUp::without_another_try(self, error))
    }

    /// Gives up places in rows. Returns whose they were, of which locks, and whether others may take those now.
    pub(super) async fn leave_rows(
        &self,
        conn: &mut PgConnection,
        claims: &[&Claim],
    ) -> sqlx::Result<Vec<(Uuid, String, bool)>> {
        let claims = || claims.iter().copied();
        let leave = self.statement(&self.sql.leave_rows).bind(names(claims())).bind(owners(claims()));
        leave.rows(conn).await
    }
}
