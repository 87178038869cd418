//! The requests about exclusive locks on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{PLACE_TTL, Waiters, unique_bits};
use lockwell_core::{Claim, ErrorKind, Grant, LockName, LockStatus, Mode};
use uuid::Uuid;

use super::driver::{Conn, Postgres, last_tokens, ttls};
use super::grace::{Closed, LOOKS};
use super::session::BEGIN;
use super::statements::ELSEWHERE;
use crate::dialect::Dialect;
use crate::dialect::error::{ended, ours};
use crate::dialect::follow_up::FollowUp;
use crate::dialect::hints::Hints;
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::ids::AsUuid;
use crate::lock::hand_over;
use crate::words::{
    Extension, Forced, Freed, Hold, HolderRow, KnownPlaces, PORTION, Portion, SHOWN, TakeRequest, TryAcquire,
    WaiterRow, micros, status,
};

impl Dialect for Postgres {
    /// Each message is a transaction, or several. One that fails stays open, without locks, until its answer
    /// is read: behind a pooler it would occupy a connection of the server for so long.
    fn is_light(&self, _: &Conn, _: &Request<Self>) -> bool {
        !self.pooled && !self.session.is_shared()
    }

    async fn queue(
        &self,
        conn: &mut Conn,
        waiters: &Waiters,
        batch: &[Arc<Request<Self>>],
    ) -> sqlx_core::Result<Vec<Answer>> {
        hand_over::carry_out(self, conn, waiters, batch).await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    async fn take(&self, conn: &mut Conn, requests: &[TakeRequest]) -> sqlx_core::Result<Vec<TryAcquire>> {
        let mut tries = 0..LOOKS;
        loop {
            let taken = self.take_each(conn, requests).await;
            match self.closed(conn, &taken, requests.iter().map(|request| &request.claim)).await? {
                Some(Closed::For(left)) => return Ok(vec![TryAcquire::Closed(left); requests.len()]),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return taken,
            }
        }
    }

    async fn release(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        // From now on they are not reclaimed: see `reclaim`.
        claims.iter().for_each(Claim::cancel);
        let mut answers = self.release_each(conn, claims).await?;
        self.doubt_denials(conn, &mut answers).await;
        Ok(answers)
    }

    async fn renew(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx_core::Result<Vec<Extension>> {
        let mut renewed = self.renew_rows(conn, hold, grants).await;
        // Needs no mark, and fails where the tables do not say any more that there are lazy grants.
        if self.closed(conn, &renewed, grants.iter().map(Grant::claim)).await?.is_some() {
            renewed = self.renew_rows(conn, hold, grants).await;
        }
        let rows = renewed?;
        let answer = |row: &Renewed| match row {
            (true, ..) => Extension::Extended,
            (false, true, _) => Extension::Blocked,
            (false, false, _) => Extension::Lost,
        };
        let mut answers: Vec<_> = rows.iter().map(answer).collect();
        if hold == Hold::Alone {
            // Before the look, which may let others be granted locks.
            self.reclaim(conn, grants, &mut answers).await;
        }
        if !rows.iter().all(|(.., may_give)| *may_give) {
            self.look_aside(conn).await;
        }
        Ok(answers)
    }

    async fn leave_each(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        let ids: Vec<_> = claims.iter().map(|claim| claim.owner().as_uuid()).collect();
        let left: Vec<(Uuid, String)> = self.statement(&self.sql.leave).bind(ids).rows(&mut *conn).await?;
        if left.is_empty() {
            return Ok(vec![Freed::default(); claims.len()]);
        }
        // A separate statement: it sees all places that were taken before these claims left.
        let mut names: Vec<_> = left.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut next = self.notify_heads(conn, names).await?;
        let freed = |claim: &Claim| {
            let owner = claim.owner().as_uuid();
            Freed::new(left.iter().any(|(one, _)| *one == owner), std::mem::take(&mut next))
        };
        Ok(claims.iter().map(freed).collect())
    }

    async fn turns(&self, conn: &mut Conn, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let heads: Vec<(String, Option<i64>)> =
            self.statement(&self.sql.turns).bind(asked).bind(conn.client()).rows(&mut *conn).await?;
        self.behind_each(conn, heads).await
    }

    async fn inspect(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<LockStatus> {
        // Before the holders: a crash in between ends the connection, and all is done again.
        let unknown_for = self.closed_for(conn).await?;
        let holders: Vec<HolderRow> =
            self.statement(&self.sql.holders).bind(name.as_str()).rows(&mut *conn).await?;
        let waiters: Vec<WaiterRow> =
            self.statement(&self.sql.first_waiters).bind(name.as_str()).bind(SHOWN).rows(conn).await?;
        Ok(status(name, holders, waiters).unknown_for(unknown_for))
    }

    async fn force_release(
        &self,
        conn: &mut Conn,
        name: &LockName,
        forced: &Forced,
    ) -> sqlx_core::Result<usize> {
        sqlx_core::raw_sql::raw_sql(BEGIN).execute(&mut **conn).await?;
        let freed = self.force(conn, name, forced).await;
        let word = if freed.is_ok() { "COMMIT" } else { "ROLLBACK" };
        ended(freed, sqlx_core::raw_sql::raw_sql(word).execute(&mut **conn).await.map(drop))
    }

    async fn sweep(&self, conn: &mut Conn) -> sqlx_core::Result<Swept> {
        let dead_for = micros(PLACE_TTL);
        let (clients, dead): (i64, Option<Uuid>) = self
            .statement(&self.sql.dead_client)
            .bind(dead_for)
            .row(&mut *conn)
            .await?
            .ok_or(sqlx_core::Error::RowNotFound)?;
        if let Some(client) = dead {
            let forget = self.statement(&self.sql.forget_places).bind(client).bind(PORTION);
            if forget.execute(&mut *conn).await?.rows_affected() < PORTION.unsigned_abs() {
                // A separate statement: it sees a place that the client has taken meanwhile, by which it is
                // alive again.
                self.statement(&self.sql.forget_client).bind(client).bind(dead_for).execute(conn).await?;
            }
        }
        Ok(Swept { clients: clients.unsigned_abs(), more: dead.is_some() })
    }

    async fn forget_stale(&self, conn: &mut Conn, known: &KnownPlaces) -> sqlx_core::Result<()> {
        let places = self.statement(&self.sql.places_of).bind(conn.client()).rows(&mut *conn).await?;
        let stale = known.stale(places);
        if !stale.is_empty() {
            let (owners, numbers): (Vec<_>, Vec<_>) = stale.into_iter().unzip();
            self.statement(&self.sql.forget_stale).bind(owners).bind(numbers).execute(conn).await?;
        }
        Ok(())
    }

    async fn purge(&self, conn: &mut Conn, idle: Duration, after: &str) -> sqlx_core::Result<Portion> {
        if after.is_empty() {
            self.statement(&self.sql.purge_waiters).execute(&mut *conn).await?;
        }
        let last = self.statement(&self.sql.portion).bind(after).bind(PORTION);
        let Some(last) = last.only_value::<Option<String>>(&mut *conn).await? else {
            return Ok(Portion::default());
        };
        let purge = self.statement(&self.sql.purge).bind(micros(idle)).bind(after).bind(last.as_str());
        let gone = purge.execute(conn).await?.rows_affected();
        Ok(Portion { gone, last: Some(last) })
    }

    async fn join(
        &self,
        conn: &mut Conn,
        mode: Mode,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        let mut tries = 0..LOOKS;
        loop {
            let joined = self.join_each(conn, mode, requests).await;
            match self.closed(conn, &joined, requests.iter().map(|request| &request.claim)).await? {
                Some(Closed::For(left)) => return Ok(vec![TryAcquire::Closed(left); requests.len()]),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return joined,
            }
        }
    }

    async fn leave_group(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        if let [claim] = claims {
            let mut answers = vec![self.leave_group_one(conn, claim).await?];
            self.doubt_denials(conn, &mut answers).await;
            return Ok(answers);
        }
        let gone: Vec<(i64, Option<i64>)> = self
            .statement(&self.sql.leave_group)
            .of_each(claims.iter())
            .bind(conn.client())
            .rows(&mut *conn)
            .await?;
        let mut answers = vec![Freed::default(); claims.len()];
        for (n, head) in gone {
            let at = usize::try_from(n - 1).unwrap_or(usize::MAX);
            if let (Some(claim), Some(answer)) = (claims.get(at), answers.get_mut(at)) {
                let next = self.behind_head(conn, claim.name(), head).await?;
                *answer = Freed::new(true, next);
            }
        }
        self.doubt_denials(conn, &mut answers).await;
        Ok(answers)
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let asked: Vec<_> = names.iter().map(LockName::as_str).collect();
        let reaped: Vec<(Option<String>, Option<i64>, bool)> =
            self.statement(&self.sql.reap).bind(asked).bind(conn.client()).rows(&mut *conn).await?;
        if !reaped.iter().all(|(.., may_give)| *may_give) {
            self.look_aside(conn).await;
        }
        let heads = reaped.into_iter().filter_map(|(name, head, _)| Some((name?, head)));
        self.behind_each(conn, heads.collect()).await
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx_core::Result<Vec<LockName>> {
        let names: Vec<String> =
            self.statement(&self.sql.stale_groups).bind(micros(idle)).values(conn).await?;
        Ok(names.iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, grant: &Grant) -> sqlx_core::Result<bool> {
        if self.become_reader(conn, grant).await? {
            return Ok(true);
        }
        // The server may have lost the record. A renewal makes it again, unless the lock is lost.
        match self.renew(conn, Hold::Alone, std::slice::from_ref(grant)).await?[..] {
            [Extension::Extended] => self.become_reader(conn, grant).await,
            [Extension::Blocked] => {
                Err(ours(ErrorKind::Held, "a transaction has locked the row of this lock"))
            }
            _ => Ok(false),
        }
    }

    async fn head(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<Option<i64>> {
        let head = self.heads(conn, &[name.as_str()]).await?.pop();
        Ok(head.and_then(|(_, head)| head).filter(|head| *head != ELSEWHERE))
    }

    async fn due_waiters(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<Vec<i64>> {
        let mut follow_up = FollowUp::default();
        let due: Vec<Option<i64>> = loop {
            let notify = self.statement(&self.sql.due_waiters).bind(name.as_str()).bind(conn.client());
            let due = notify.values(&mut *conn).await;
            if let Some(due) = follow_up.settle(self, due) {
                break due?;
            }
        };
        Ok(due.into_iter().flatten().filter(|number| *number != ELSEWHERE).collect())
    }
}

/// Whether a lease was extended, whether its row is there, and whether the server grants locks.
type Renewed = (bool, bool, bool);

impl Postgres {
    async fn renew_rows(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx_core::Result<Vec<Renewed>> {
        self.statement(self.sql.renew.of(hold))
            .of_each(grants.iter().map(Grant::claim))
            .bind(ttls(grants.iter().map(Grant::claim)))
            .bind(last_tokens(grants))
            .rows(conn)
            .await
    }

    /// Frees a lock. Returns the number of holders.
    async fn force(&self, conn: &mut Conn, name: &LockName, forced: &Forced) -> sqlx_core::Result<usize> {
        let held: Option<(i64, i64)> = self
            .statement(&self.sql.force)
            .bind(name.as_str())
            .bind(Uuid::from_u128(unique_bits()))
            .bind(forced.up_to())
            .row(&mut *conn)
            .await?;
        let Some((mode, token)) = held else {
            // An earlier try, whose answer was lost, has freed it.
            if let Some(holders) = forced.holders() {
                return Ok(holders);
            }
            self.force_unknown(conn, name).await?;
            return Ok(0);
        };
        let mut holders = 1;
        if mode != 0 {
            let alive: Vec<bool> =
                self.statement(&self.sql.force_members).bind(name.as_str()).values(conn).await?;
            holders = alive.into_iter().filter(|alive| *alive).count();
        }
        forced.note(token, holders);
        Ok(holders)
    }
}
