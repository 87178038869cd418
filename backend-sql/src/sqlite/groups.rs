//! The requests about groups on SQLite.

use std::time::Duration;

use lockwell_core::{Claim, Grant, LockName, Mode};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::bounds::{Answers, RAISES, not_raised};
use super::connection::Connection;
use super::driver::Sqlite;
use super::sockets::Message;
use super::take::Refusal;
use crate::dialect::groups::Groups;
use crate::ids::AsUuid;
use crate::words::{Freed, SEVERAL, TakeRequest, TryAcquire, micros, token};

/// How many statements each of these has, with those that begin and end its transaction.
const JOINING: usize = 6;
const LEAVING: usize = 4;
const REAPING: usize = 4;
const DOWNGRADING: usize = 5;

impl Sqlite {
    async fn join_each(&self, conn: &mut Connection, requests: &[TakeRequest]) -> sqlx::Result<Answers> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            match self.join_one(conn, request).await? {
                Some(answer) => answers.push(answer),
                None => return Ok(None),
            }
        }
        Ok(Some(answers))
    }

    async fn join_one(
        &self,
        conn: &mut Connection,
        request: &TakeRequest,
    ) -> sqlx::Result<Option<TryAcquire>> {
        let claim = &request.claim;
        loop {
            let joined = conn
                .write_several(&self.sql.join, JOINING, |query| {
                    let query = self.asked(query, claim).bind(claim.mode().code());
                    query.bind(request.ticket).bind(claim.label())
                })
                .await?;
            if let Some(row) = joined.rows.first() {
                return Ok(Some(TryAcquire::Granted(token(row.try_get(0)?))));
            }
            if let Some(number) = self.member(conn.get(), claim).await? {
                return Ok(Some(TryAcquire::Member(token(number))));
            }
            if let Refusal::Is(answer) = self.refused(conn, request).await? {
                return Ok(answer);
            }
        }
    }

    /// The token of a claim that is already a member.
    async fn member(&self, conn: &mut SqliteConnection, claim: &Claim) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(self.sql.member.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .fetch_optional(conn)
            .await
    }
}

impl Sqlite {
    /// The clients and tickets of all waiters whose turn it is.
    pub(super) async fn due(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<Vec<(Uuid, i64)>> {
        sqlx::query_as(self.sql.due_waiters.get()).bind(name.as_str()).fetch_all(conn.get()).await
    }

    /// Notifies the waiters of other clients. Returns the tickets of those of this client.
    fn wake(&self, conn: &Connection, due: impl IntoIterator<Item = (Uuid, i64)>) -> Vec<i64> {
        let mut own = Vec::new();
        for (client, ticket) in due {
            if client == conn.client() {
                own.push(ticket);
            } else {
                self.send(conn, client, Message { ticket, ..Message::default() });
            }
        }
        own
    }
}

impl Groups for Sqlite {
    async fn join(
        &self,
        conn: &mut Connection,
        _: Mode,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Vec<TryAcquire>> {
        self.check_disk(conn).await?;
        for _ in 0..=RAISES {
            if let Some(answers) = self.join_each(conn, requests).await? {
                return Ok(answers);
            }
            self.raise(conn, requests).await?;
        }
        Err(not_raised())
    }

    async fn leave_group(&self, conn: &mut Connection, claims: &[Claim]) -> sqlx::Result<Vec<Freed>> {
        let mut left = Vec::with_capacity(claims.len());
        for claim in claims {
            let (name, owner) = (claim.name().as_str(), claim.owner().as_uuid());
            let leave =
                conn.write_several(&self.sql.leave_group, LEAVING, |query| query.bind(name).bind(owner));
            left.push(leave.await?.changed > 0);
        }
        self.freed(conn, claims, &left).await
    }

    async fn reap(&self, conn: &mut Connection, names: &[LockName]) -> sqlx::Result<Vec<i64>> {
        let mut next = Vec::new();
        for name in names {
            conn.write_several(&self.sql.reap, REAPING, |query| query.bind(name.as_str())).await?;
            next.extend(self.next(conn, name).await?);
        }
        Ok(next)
    }

    async fn stale_groups(&self, conn: &mut Connection, idle: Duration) -> sqlx::Result<Vec<LockName>> {
        let conn = conn.get();
        let names: Vec<String> =
            sqlx::query_scalar(self.sql.stale_groups.get()).bind(micros(idle)).fetch_all(conn).await?;
        Ok(names.iter().filter_map(|name| LockName::new(name).ok()).collect())
    }

    async fn downgrade(&self, conn: &mut Connection, grant: &Grant) -> sqlx::Result<bool> {
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

    async fn head(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<Option<i64>> {
        let head = sqlx::query_as(self.sql.next.get()).bind(name.as_str());
        let head: Option<(i64, Uuid, i64)> = head.fetch_optional(conn.get()).await?;
        Ok(match head {
            Some((0, client, ticket)) => self.wake(conn, [(client, ticket)]).first().copied(),
            Some(_) => Some(SEVERAL),
            None => None,
        })
    }

    async fn due_waiters(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<Vec<i64>> {
        let due = self.due(conn, name).await?;
        Ok(self.wake(conn, due))
    }
}
