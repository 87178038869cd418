//! The releases of exclusive locks on PostgreSQL: each grants the lock to its first waiter.

use lockwell_core::Claim;
use lockwell_core::backend::Waiters;
use sqlx::postgres::PgConnection;

use super::driver::{Postgres, names, owners};
use super::named::NamedSql;
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::groups::Groups;
use crate::dialect::queued::TRIES;
use crate::ids::AsUuid;
use crate::words::{Freed, Notification};

/// Whether the claim held the lock, whether a transaction has locked its row; as in [`Handed`]; and whether the
/// queue is in the row, and nothing was done.
type HandedOne = (bool, bool, Option<bool>, Option<String>, bool, bool, bool);

/// Whether all waiters must be notified, the notification for a waiter of this client, and whether to look again;
/// whether the answer is durable; whether the queue is in the row, and nothing was done; and whether more wait in
/// the table.
type Handed = (Option<bool>, Option<String>, bool, bool, bool, bool);

impl Postgres {
    /// Frees a lock.
    pub(super) async fn release_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Freed> {
        if !self.hot.is_hot(claim.name()) {
            let short = self.statement(&self.sql.release);
            let short = short.bind(claim.name().as_str()).bind(claim.owner().as_uuid());
            if short.value::<i64>(&mut *conn).await?.is_some() {
                return Ok(Freed::new(true, Vec::new()));
            }
        }
        for _ in 0..TRIES {
            let tries_row = self.tries_row(claim.name());
            if tries_row && let Some(handed) = self.hand(conn, &self.sql.hand_row, claim, waiters).await? {
                return self.handed(conn, claim, handed, waiters).await;
            }
            match self.hand(conn, &self.sql.hand_over, claim, waiters).await? {
                None => return Ok(Freed::default()),
                // Nothing can be granted at this time, or this client is behind a pooler.
                Some((.., true, _)) if tries_row || !self.queues.is_in_table(claim.name()) => {
                    self.spill(conn, vec![claim.name().as_str()]).await?;
                }
                Some((.., true, _)) => self.queues.note(claim.name(), false),
                Some(handed) => {
                    self.queues.note(claim.name(), true);
                    return self.handed(conn, claim, handed, waiters).await;
                }
            }
        }
        Ok(Freed { blocked: true, ..Freed::default() })
    }

    /// Frees several locks.
    pub(super) async fn release_many(
        &self,
        conn: &mut PgConnection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut answers = vec![None; claims.len()];
        for (n, (done, text, again, durable)) in
            self.hand_rows(conn, claims, waiters).await?.into_iter().enumerate()
        {
            if done {
                let handed = (None, text, again, durable, false, false);
                answers[n] = Some(self.handed(conn, &claims[n], handed, waiters).await?);
            }
        }
        let others: Vec<usize> = (0..claims.len()).filter(|&n| answers[n].is_none()).collect();
        if others.is_empty() {
            return Ok(answers.into_iter().flatten().collect());
        }
        let rest = || others.iter().map(|&n| &claims[n]);
        let many = &self.sql.hand_over_many;
        let bound = || {
            let bound = many.call().bind(names(rest())).bind(owners(rest()));
            bound.bind(waiters.client().as_uuid())
        };
        // The first ones may be free already.
        let after_others = |error| if others.len() < claims.len() { in_doubt(error) } else { error };
        let mut rows: sqlx::Result<Vec<HandedOne>> = self.commit_and_notify(&mut *conn, many, bound()).await;
        if self.closed(&mut *conn, &rows, rest()).await.map_err(after_others)?.is_some() {
            rows = self.commit_and_notify(&mut *conn, many, bound()).await;
        }
        let rows = rows.map_err(after_others)?;
        for (&n, (released, held, several, notification, again, durable, in_row)) in others.iter().zip(rows) {
            answers[n] = Some(if in_row {
                self.release_one(conn, &claims[n], waiters).await.map_err(in_doubt)?
            } else if released {
                let handed = (several, notification, again, durable, false, false);
                self.handed(conn, &claims[n], handed, waiters).await?
            } else {
                Freed { blocked: held, ..Freed::default() }
            });
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Grants the lock to its first waiter by this statement. `None`: the claim did not hold the lock, or the
    /// queue is elsewhere.
    async fn hand(
        &self,
        conn: &mut PgConnection,
        sql: &NamedSql,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Option<Handed>> {
        let mut handed = self.send(&mut *conn, sql, claim, waiters).await;
        if self.closed(&mut *conn, &handed, std::iter::once(claim)).await?.is_some() {
            handed = self.send(conn, sql, claim, waiters).await;
        }
        handed
    }

    async fn send(
        &self,
        conn: &mut PgConnection,
        sql: &NamedSql,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Option<Handed>> {
        let (name, owner, client) =
            (claim.name().as_str(), claim.owner().as_uuid(), waiters.client().as_uuid());
        if self.grace.is_some() && sql.name == self.sql.hand_row.name {
            // It waits for no disk, and notifies by itself.
            return self.statement(&sql.sql).bind(name).bind(owner).bind(client).row(conn).await;
        }
        let bound = sql.call().bind(name).bind(owner).bind(client);
        Ok(self.commit_and_notify(conn, sql, bound).await?.pop())
    }

    /// The result of a release.
    async fn handed(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        mut handed: Handed,
        waiters: &Waiters,
    ) -> sqlx::Result<Freed> {
        if let (_, _, true, ..) = handed {
            let mut follow_up = FollowUp::default();
            // This statement sees each waiter that entered before the lock was free. One that entered later
            // has seen that.
            handed = loop {
                let looked = self.hand(conn, &self.sql.hand_on, claim, waiters).await;
                if let Some(looked) = follow_up.settle(self, looked) {
                    break looked?.unwrap_or_default();
                }
            };
        }
        let mut freed = Freed::new(true, Vec::new());
        match &handed {
            (Some(true), ..) => freed.next = self.due_waiters(conn, claim.name(), waiters).await?,
            (_, Some(text), ..) => freed.notification = Notification::parse(text),
            _ => (),
        }
        if let (.., true) = handed {
            self.refill(conn, claim.name()).await?;
        }
        Ok(freed)
    }
}
