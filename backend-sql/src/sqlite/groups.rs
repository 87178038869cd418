//! The requests about groups on SQLite.

use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant, LockName, Mode};
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::bounds::{Answers, RAISES, not_raised};
use super::connection::Connection;
use super::driver::Sqlite;
use super::sockets::Message;
use super::write::Commits;
use crate::dialect::groups::Groups;
use crate::ids::AsUuid;
use crate::words::{Freed, NO_TICKET, SEVERAL, TakeRequest, TryAcquire, micros, token};

/// How many statements reap a group. They begin and end a transaction, in one message: a claim that wants the
/// lock alone reaps on the runtime of its caller, which may stop at any moment.
const REAPING: usize = 4;

impl Sqlite {
    async fn join_each(
        &self,
        conn: &mut SqliteConnection,
        requests: &[TakeRequest],
    ) -> sqlx::Result<Answers> {
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
        conn: &mut SqliteConnection,
        request: &TakeRequest,
    ) -> sqlx::Result<Option<TryAcquire>> {
        let claim = &request.claim;
        let joining = self.asked(sqlx::query(self.sql.join.get()), claim);
        let joined = joining.bind(claim.mode().code()).bind(request.ticket).fetch_all(&mut *conn).await?;
        let Some(row) = joined.first() else {
            return match self.member(conn, claim).await? {
                Some(number) => Ok(Some(TryAcquire::Member(token(number)))),
                None => self.refused(conn, request).await,
            };
        };
        let number: i64 = row.try_get(0)?;
        sqlx::query(self.sql.insert_member.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .bind(number)
            .bind(micros(claim.ttl()))
            .bind(claim.label())
            .bind(claim.mode().code())
            .execute(&mut *conn)
            .await?;
        if request.ticket != NO_TICKET {
            sqlx::query(self.sql.leave.inside().get()).bind(claim.owner().as_uuid()).execute(conn).await?;
        }
        Ok(Some(TryAcquire::Granted(token(number))))
    }

    /// The token of a claim that is already a member.
    async fn member(&self, conn: &mut SqliteConnection, claim: &Claim) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(self.sql.member.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .fetch_optional(conn)
            .await
    }

    async fn leave_each_group(
        &self,
        conn: &mut SqliteConnection,
        claims: &[Claim],
    ) -> sqlx::Result<Vec<bool>> {
        let mut left = Vec::with_capacity(claims.len());
        for claim in claims {
            let deleted = sqlx::query(self.sql.delete_member.get())
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .execute(&mut *conn)
                .await?;
            self.shrink(conn, claim.name(), deleted.rows_affected()).await?;
            left.push(deleted.rows_affected() > 0);
        }
        Ok(left)
    }

    /// Subtracts the members that have left from the count.
    async fn shrink(&self, conn: &mut SqliteConnection, name: &LockName, gone: u64) -> sqlx::Result<()> {
        if gone == 0 {
            return Ok(());
        }
        let shrink = sqlx::query(self.sql.shrink.get()).bind(name.as_str()).bind(gone.cast_signed());
        shrink.execute(conn).await.map(|_| ())
    }

    async fn downgrade_rows(&self, conn: &mut SqliteConnection, claim: &Claim) -> sqlx::Result<bool> {
        let name = claim.name().as_str();
        let shared = Mode::Shared.code();
        let inserted = sqlx::query(self.sql.downgrade.get())
            .bind(name)
            .bind(claim.owner().as_uuid())
            .bind(shared)
            .execute(&mut *conn)
            .await?;
        if inserted.rows_affected() == 0 {
            return self.member(conn, claim).await.map(|member| member.is_some());
        }
        sqlx::query(self.sql.downgraded.get()).bind(name).bind(shared).execute(&mut *conn).await?;
        // Its place may not have been tidied up yet, and is not the last holder's any more.
        sqlx::query(self.sql.leave.inside().get()).bind(claim.owner().as_uuid()).execute(conn).await?;
        Ok(true)
    }
}

impl Sqlite {
    /// The clients and tickets of all waiters whose turn it is.
    pub(super) async fn due(&self, conn: &mut Connection, name: &LockName) -> sqlx::Result<Vec<(Uuid, i64)>> {
        sqlx::query_as(self.sql.due_waiters.get()).bind(name.as_str()).fetch_all(conn.get()).await
    }

    /// Notifies the waiters of other clients. Returns the tickets of those of this client.
    fn wake(
        &self,
        conn: &Connection,
        due: impl IntoIterator<Item = (Uuid, i64)>,
        waiters: &Waiters,
    ) -> Vec<i64> {
        let mut own = Vec::new();
        for (client, ticket) in due {
            if client == waiters.client().as_uuid() {
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
            conn.begin(Commits::Granted).await?;
            let answers = self.join_each(conn.get(), requests).await;
            if let Some(answers) = conn.end(answers).await? {
                return Ok(answers);
            }
            self.raise(conn, requests).await?;
        }
        Err(not_raised())
    }

    async fn leave_group(
        &self,
        conn: &mut Connection,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        conn.begin(Commits::Written).await?;
        let left = self.leave_each_group(conn.get(), claims).await;
        let left = conn.end(left).await?;
        self.freed(conn, claims, &left, waiters).await
    }

    async fn reap(
        &self,
        conn: &mut Connection,
        names: &[LockName],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let mut next = Vec::new();
        for name in names {
            conn.write_several(&self.sql.reap, REAPING, |query| query.bind(name.as_str())).await?;
            next.extend(self.next(conn, name, waiters).await?);
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
        conn.begin(Commits::Granted).await?;
        let downgraded = self.downgrade_rows(conn.get(), grant.claim()).await;
        conn.end(downgraded).await
    }

    async fn head(
        &self,
        conn: &mut Connection,
        name: &LockName,
        waiters: &Waiters,
    ) -> sqlx::Result<Option<i64>> {
        let head = sqlx::query_as(self.sql.next.get()).bind(name.as_str());
        let head: Option<(i64, Uuid, i64)> = head.fetch_optional(conn.get()).await?;
        Ok(match head {
            Some((0, client, ticket)) => self.wake(conn, [(client, ticket)], waiters).first().copied(),
            Some(_) => Some(SEVERAL),
            None => None,
        })
    }

    async fn due_waiters(
        &self,
        conn: &mut Connection,
        name: &LockName,
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<i64>> {
        let due = self.due(conn, name).await?;
        Ok(self.wake(conn, due, waiters))
    }
}
