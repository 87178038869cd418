//! What SQLite is asked about locks that one holds alone, and about the queue.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::backend::{PLACE_TTL, Waiters};
use lockcore::{Claim, Grant, LockName, LockStatus};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::connection::Connection;
use super::write::Commits;
use super::{Sqlite, end, json};
use crate::dialect::{
    Ask, Dialect, Extension, Freed, Hold, HolderRow, NO_TICKET, Took, WaitersRow, block, micros, status,
    token,
};
use crate::groups::Groups;
use crate::purge::{PORTION, Portion};

/// How a lock stands, as one claim sees it.
struct Standing {
    in_use: Option<i64>,
    left: Option<i64>,
    is_mine: bool,
}

impl Standing {
    fn answer(&self, ask: &Ask) -> Took {
        Took::refused(&ask.claim, self.in_use, self.left)
    }
}

impl Sqlite {
    async fn take_one(&self, conn: &mut Connection, ask: &Ask) -> sqlx::Result<Took> {
        let claim = &ask.claim;
        // One that was found taken of late is looked at first, unless the claim has been waiting for its turn: a refusal is
        // one statement then, and one that keeps no other writer out.
        if ask.ticket == NO_TICKET && self.hot.is_hot(claim.name()) {
            let standing = self.standing(conn.get(), ask).await?;
            if !standing.is_mine && standing.answer(ask) != Took::Busy(None) {
                return Ok(self.note_refused(ask, &standing));
            }
        }
        let taken = conn
            .write(&self.sql.take, |query| {
                query
                    .bind(claim.name().as_str())
                    .bind(claim.owner().as_uuid())
                    .bind(micros(claim.ttl()))
                    .bind(claim.label())
                    .bind(ask.ticket)
                    .bind(block(claim))
            })
            .await?;
        match taken.rows.as_slice() {
            [row] => Ok(Took::Granted(token(row.try_get(0)?))),
            _ => self.refused(conn.get(), ask).await,
        }
    }

    pub(super) async fn refused(&self, conn: &mut SqliteConnection, ask: &Ask) -> sqlx::Result<Took> {
        let standing = self.standing(conn, ask).await?;
        Ok(self.note_refused(ask, &standing))
    }

    fn note_refused(&self, ask: &Ask, standing: &Standing) -> Took {
        self.hot.note(ask.claim.name());
        standing.answer(ask)
    }

    async fn standing(&self, conn: &mut SqliteConnection, ask: &Ask) -> sqlx::Result<Standing> {
        let (in_use, left, is_mine) = sqlx::query_as(self.sql.standing.get())
            .bind(ask.claim.name().as_str())
            .bind(ask.ticket)
            .bind(ask.claim.owner().as_uuid())
            .fetch_one(conn)
            .await?;
        Ok(Standing { in_use, left, is_mine })
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

    async fn take_each(&self, conn: &mut Connection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        let mut answers = Vec::with_capacity(asks.len());
        for ask in asks {
            answers.push(self.take_one(&mut *conn, ask).await?);
        }
        Ok(answers)
    }

    /// Answers with how many held the lock.
    async fn force(&self, conn: &mut SqliteConnection, name: &LockName) -> sqlx::Result<usize> {
        let mode: Option<i64> =
            sqlx::query_scalar(self.sql.held.get()).bind(name.as_str()).fetch_optional(&mut *conn).await?;
        let Some(mode) = mode else { return Ok(0) };
        sqlx::query(self.sql.force.get())
            .bind(name.as_str())
            .bind(Uuid::from_u128(rand::random()))
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
    async fn take(&self, conn: &mut Connection, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
        if asks.len() == 1 {
            return self.take_each(conn, asks).await;
        }
        conn.begin(Commits::Synced).await?;
        let answers = self.take_each(conn, asks).await;
        end(conn.get(), answers).await
    }

    // What is released and granted to the next at once, is a grant: then this must be `Synced`.
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
        let renew = if hold == Hold::Alone { &self.sql.renew } else { &self.sql.renew_members };
        let rows = json(&rows)?;
        let renewed = conn.write(renew, |query| query.bind(rows)).await?.rows;
        let renewed: HashSet<Uuid> = renewed.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        let is_renewed = |grant: &Grant| renewed.contains(&grant.claim().owner().as_uuid());
        let answer = |grant| if is_renewed(grant) { Extension::Extended } else { Extension::Lost };
        Ok(grants.iter().map(answer).collect())
    }

    async fn enroll(&self, conn: &mut Connection, claim: &Claim, client: Uuid) -> sqlx::Result<i64> {
        let enrolled = conn
            .write(&self.sql.enroll, |query| {
                query
                    .bind(claim.name().as_str())
                    .bind(claim.owner().as_uuid())
                    .bind(client)
                    .bind(micros(PLACE_TTL))
                    .bind(claim.label())
                    .bind(claim.mode().code())
            })
            .await?;
        enrolled.rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }

    async fn keep(&self, conn: &mut Connection, places: &[(i64, Uuid)]) -> sqlx::Result<Vec<bool>> {
        let tickets: Vec<_> = places.iter().map(|(ticket, _)| *ticket).collect();
        let asked = json(&tickets)?;
        let kept = conn.write(&self.sql.stay, |query| query.bind(asked).bind(micros(PLACE_TTL))).await?.rows;
        let kept: HashSet<i64> = kept.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        Ok(tickets.iter().map(|ticket| kept.contains(ticket)).collect())
    }

    async fn tidy(&self, conn: &mut Connection, tickets: &[i64]) -> sqlx::Result<()> {
        let tickets = json(tickets)?;
        conn.write(&self.sql.tidy, |query| query.bind(tickets)).await.map(|_| ())
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
            .bind(waiters.client())
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
            sqlx::query_as(self.sql.waiters.get()).bind(name.as_str()).fetch_one(conn).await?;
        Ok(status(name, holders, waiters))
    }

    async fn force_release(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<usize> {
        let conn = conn.begin(Commits::Synced).await?;
        let freed = self.force(conn, name).await;
        end(conn, freed).await
    }

    async fn purge(&self, conn: &mut Connection, idle: Duration, after: &str) -> sqlx::Result<Portion> {
        if after.is_empty() {
            while conn.write(&self.sql.purge_queue, |query| query.bind(PORTION)).await?.changed
                >= PORTION.unsigned_abs()
            {}
        }
        let last = sqlx::query_scalar(self.sql.portion.get()).bind(after).bind(PORTION);
        let Some(last): Option<String> = last.fetch_one(conn.get()).await? else {
            return Ok(Portion::default());
        };
        let purge = conn.write(&self.sql.purge, |query| query.bind(micros(idle)).bind(after).bind(&last));
        let gone = purge.await?.changed;
        Ok(Portion { gone, last: Some(last) })
    }
}
