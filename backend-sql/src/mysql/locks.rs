//! The requests about exclusive locks and about the queue on MySQL.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockwell_core::backend::{PLACE_TTL, Waiters, unique_bits};
use lockwell_core::{Claim, Grant, LockName, LockStatus, Mode};
use sqlx_core::row::Row;
use sqlx_mysql::MySqlRow;
use uuid::Uuid;

use super::call::{hex, send_whole, undo};
use super::driver::{Conn, MySql};
use super::groups::{AGAIN, DELETES, Head, name_of};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::Dialect;
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::groups::{find_behind, find_next, freed_each};
use crate::dialect::hints::Hints;
use crate::dialect::requests::{Answer, Request};
use crate::dialect::sweep::Swept;
use crate::ids::AsUuid;
use crate::lock::hand_over;
use crate::words::{
    Extension, Forced, Freed, Hold, HolderRow, KnownPlaces, PORTION, Portion, SHOWN, TakeRequest, TryAcquire,
    WaiterRow, micros, status,
};

impl MySql {
    /// Frees a lock. Returns the number of holders.
    async fn force(&self, conn: &mut Conn, name: &LockName, forced: &Forced) -> sqlx_core::Result<usize> {
        let held = self.sql.held.call().bind(name).bind(forced.up_to());
        let held: Option<(i64, i64)> = held.row(&mut conn.inner).await?;
        // An earlier try, whose answer was lost, may have freed it.
        let Some((mode, token)) = held else { return Ok(forced.holders().unwrap_or(0)) };
        let mut holders = 1;
        if mode != 0 {
            let alive: i64 = self.sql.alive.call().bind(name).only_value(&mut conn.inner).await?;
            holders = usize::try_from(alive).unwrap_or(0);
            self.sql.force_members.call().bind(name).execute(&mut conn.inner).await?;
        }
        let nobody = Uuid::from_u128(unique_bits());
        self.sql.force.call().bind(name).bind(nobody).execute(&mut conn.inner).await?;
        forced.note(token, holders);
        Ok(holders)
    }
}

impl MySql {
    /// The waiters whose turn it is at each of these locks. If the locks have just been freed, the waiters of
    /// other processes are notified.
    async fn turns_at(
        &self,
        conn: &mut Conn,
        mut names: Vec<&LockName>,
        freed: bool,
    ) -> sqlx_core::Result<BTreeMap<LockName, Vec<i64>>> {
        let mut turns = BTreeMap::new();
        if names.is_empty() {
            return Ok(turns);
        }
        names.sort_unstable();
        let rows = Rows::of_names(names.iter().copied())?;
        let asked = self.sql.turns.call().bind(rows.json()).bind(conn.client());
        let heads: Vec<(i64, Option<i64>, Option<Uuid>)> = asked.rows(&mut conn.inner).await?;
        let others: BTreeSet<Uuid> =
            heads.iter().filter_map(|(_, _, other)| other.filter(|_| freed)).collect();
        self.wake(conn, others);
        for (n, head, _) in heads {
            if let Some(name) = usize::try_from(n - 1).ok().and_then(|at| names.get(at)) {
                turns.insert((*name).clone(), find_behind(self, conn, name, head).await?);
            }
        }
        Ok(turns)
    }
}

impl Dialect for MySql {
    // Whenever a client looks for those of others.
    const OWN_PLACES_EVERY: Duration = Duration::ZERO;

    /// The transactions of several statements, and a release that is to wake a waiter, are for tasks.
    fn is_light(&self, conn: &Conn, request: &Request<Self>) -> bool {
        match request {
            Request::Take(_) => true,
            Request::Claim(entry) => self.entering(conn, &[entry]).contains(&Step::EnterMarked),
            Request::Release(claim) => plan(Asked::Release, self.hints.of(claim.name()))[0] == Step::Release,
            _ => false,
        }
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
        match requests {
            [request] => Ok(vec![self.take_one(conn, &request.claim).await?]),
            many => self.take_many(conn, many).await,
        }
    }

    async fn release(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        match claims {
            [claim] => Ok(vec![self.release_one(conn, claim).await?]),
            many => self.release_many(conn, many).await,
        }
    }

    async fn renew(
        &self,
        conn: &mut Conn,
        hold: Hold,
        grants: &[Grant],
    ) -> sqlx_core::Result<Vec<Extension>> {
        self.renew_unlocked(conn, hold, grants).await
    }

    async fn leave_each(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        let rows = Rows::of_claims(claims.iter())?;
        let leave = self.sql.leave.call().bind(rows.json());
        let answers = send_whole(&mut conn.inner, leave.written()).await?;
        let owner = |row: &MySqlRow| row.try_get_unchecked::<String, _>(0);
        let left: HashSet<String> = answers.rows.iter().map(owner).collect::<sqlx_core::Result<_>>()?;
        let has_left = |claim: &Claim| left.contains(&hex(claim.owner().as_uuid().as_bytes()));
        // A separate statement: it sees all places that were taken before these were left.
        let mut names: Vec<_> = claims.iter().filter(|claim| has_left(claim)).map(Claim::name).collect();
        names.sort_unstable();
        names.dedup();
        let turns = self.turns_at(conn, names, true).await?;
        let mut next: Vec<i64> = turns.into_values().flatten().collect();
        let freed = |claim: &Claim| Freed::new(has_left(claim), std::mem::take(&mut next));
        Ok(claims.iter().map(freed).collect())
    }

    async fn turns(&self, conn: &mut Conn, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let turns = self.turns_at(conn, names.iter().collect(), false).await?;
        Ok(turns.into_values().flatten().collect())
    }

    async fn inspect(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<LockStatus> {
        let holders: Vec<HolderRow> = self.sql.holders.call().bind(name).rows(&mut conn.inner).await?;
        let first = self.sql.first_waiters.call().bind(name).bind(SHOWN);
        let waiters: Vec<WaiterRow> = first.rows(&mut conn.inner).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(
        &self,
        conn: &mut Conn,
        name: &LockName,
        forced: &Forced,
    ) -> sqlx_core::Result<usize> {
        // Whom it is about to free is noted before it commits, so it is several messages.
        send_whole(&mut conn.inner, self.sql.begin.text().to_owned()).await?;
        let freed = match self.force(conn, name, forced).await {
            Ok(freed) => freed,
            Err(error) => return Err(undo(&mut conn.inner, error).await),
        };
        send_whole(&mut conn.inner, self.sql.commit.text().to_owned()).await.map(|_| freed)
    }

    async fn sweep(&self, conn: &mut Conn) -> sqlx_core::Result<Swept> {
        let dead_for = micros(PLACE_TTL);
        let found = self.sql.dead_client.call().bind(dead_for);
        let (clients, dead): (i64, Option<Uuid>) =
            found.row(&mut conn.inner).await?.ok_or(sqlx_core::Error::RowNotFound)?;
        if let Some(client) = dead {
            let forget = self.sql.forget_places.call().bind(client).bind(PORTION);
            if forget.execute(&mut conn.inner).await?.rows_affected() < PORTION.unsigned_abs() {
                let forget = self.sql.forget_client.call().bind(client).bind(dead_for);
                forget.execute(&mut conn.inner).await?;
            }
        }
        Ok(Swept { clients: clients.unsigned_abs(), more: dead.is_some() })
    }

    async fn forget_stale(&self, conn: &mut Conn, known: &KnownPlaces) -> sqlx_core::Result<()> {
        let places = self.sql.places_of.call().bind(conn.client()).rows(&mut conn.inner).await?;
        for (owner, number) in known.stale(places) {
            self.sql.forget_stale.call().bind(owner).bind(number).execute(&mut conn.inner).await?;
        }
        Ok(())
    }

    async fn purge(&self, conn: &mut Conn, idle: Duration, after: &str) -> sqlx_core::Result<Portion> {
        if after.is_empty() {
            self.sql.purge_waiters.call().execute(&mut conn.inner).await?;
        }
        let portion = self.sql.portion.call().bind(after.as_bytes()).bind(PORTION);
        let Some(last) = portion.only_value::<Option<Vec<u8>>>(&mut conn.inner).await? else {
            return Ok(Portion::default());
        };
        let purge = self.sql.purge.call().bind(after.as_bytes()).bind(last.as_slice()).bind(micros(idle));
        let gone = purge.execute(&mut conn.inner).await?.rows_affected();
        let last = String::from_utf8(last).map_err(|error| sqlx_core::Error::Decode(error.into()))?;
        Ok(Portion { gone, last: Some(last) })
    }

    async fn join(
        &self,
        conn: &mut Conn,
        _: Mode,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
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
        Ok(answers.into_iter().map(|answer| answer.unwrap_or(TryAcquire::REFUSED)).collect())
    }

    async fn leave_group(&self, conn: &mut Conn, claims: &[Claim]) -> sqlx_core::Result<Vec<Freed>> {
        let leaving = |claim: &Claim| self.sql.leave_group.of(claim);
        let mut sorted: Vec<usize> = (0..claims.len()).collect();
        sorted.sort_unstable_by_key(|&at| claims[at].name());
        let mut released = vec![false; claims.len()];
        let left = self.together(conn, sorted.iter().map(|&at| leaving(&claims[at])), DELETES).await?;
        for (at, done) in sorted.into_iter().zip(left) {
            released[at] = done.rows_affected() > 0;
        }
        // A late copy of the request of a claim that is no member any more may have taken a place. For an
        // exclusive claim, the release of its lock has deleted that.
        let is_lost = |(claim, released): (_, &bool)| !released && Hold::of(claim) == Hold::Together;
        let lost = claims.iter().zip(&released).filter(|(claim, released)| is_lost((*claim, *released)));
        let lost: Vec<_> = lost.map(|(claim, _)| claim).collect();
        if !lost.is_empty() {
            let rows = Rows::of_claims(lost.into_iter())?;
            let forget = self.sql.forget_all.call().bind(rows.json());
            if let Err(error) = forget.execute(&mut conn.inner).await {
                return Err(if released.contains(&true) { in_doubt(error) } else { error });
            }
        }
        freed_each(self, conn, claims, &released).await
    }

    async fn reap(&self, conn: &mut Conn, names: &[LockName]) -> sqlx_core::Result<Vec<i64>> {
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        self.together(conn, sorted.into_iter().map(|name| self.sql.reap.call().bind(name)), DELETES).await?;
        let mut next = Vec::new();
        for name in names {
            next.extend(find_next(self, conn, name).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Conn, idle: Duration) -> sqlx_core::Result<Vec<LockName>> {
        let names: Vec<Vec<u8>> =
            self.sql.stale_groups.call().bind(micros(idle)).values(&mut conn.inner).await?;
        Ok(names.iter().filter_map(|name| name_of(name)).collect())
    }

    async fn downgrade(&self, conn: &mut Conn, grant: &Grant) -> sqlx_core::Result<bool> {
        let call = self.sql.downgrade.of(grant.claim()).bind(Mode::Shared.code());
        let answers = send_whole(&mut conn.inner, call.written()).await?;
        let is_member: i64 =
            answers.rows.first().ok_or(sqlx_core::Error::RowNotFound)?.try_get_unchecked(0)?;
        Ok(is_member != 0)
    }

    async fn head(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<Option<i64>> {
        let head: Option<Head> =
            self.sql.next.call().bind(name).bind(conn.client()).row(&mut conn.inner).await?;
        let Some((ticket, other)) = head else { return Ok(None) };
        self.wake(conn, other);
        Ok(ticket)
    }

    async fn due_waiters(&self, conn: &mut Conn, name: &LockName) -> sqlx_core::Result<Vec<i64>> {
        let client = conn.client();
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
