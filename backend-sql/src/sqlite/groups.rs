//! The requests about groups on SQLite.

use lockwell_core::{Claim, LockName};
use sqlx_core::row::Row;
use sqlx_sqlite::SqliteConnection;
use uuid::Uuid;

use super::bounds::Answers;
use super::connection::Connection;
use super::driver::Sqlite;
use super::sockets::Message;
use super::take::Refusal;
use crate::ids::AsUuid;
use crate::words::{TakeRequest, TryAcquire, token};

/// How many statements each of these has, with those that begin and end its transaction.
const JOINING: usize = 6;
pub(super) const LEAVING: usize = 4;
pub(super) const REAPING: usize = 4;
pub(super) const DOWNGRADING: usize = 5;

impl Sqlite {
    pub(super) async fn join_each(
        &self,
        conn: &mut Connection,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Answers> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            match self.join_one(conn, request).await? {
                Some(answer) => answers.push(answer),
                None => return Ok(None),
            }
        }
        Ok(Some(answers))
    }

    pub(super) async fn join_one(
        &self,
        conn: &mut Connection,
        request: &TakeRequest,
    ) -> sqlx_core::Result<Option<TryAcquire>> {
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
    pub(super) async fn member(
        &self,
        conn: &mut SqliteConnection,
        claim: &Claim,
    ) -> sqlx_core::Result<Option<i64>> {
        sqlx_core::query_scalar::query_scalar(self.sql.member.get())
            .bind(claim.name().as_str())
            .bind(claim.owner().as_uuid())
            .fetch_optional(conn)
            .await
    }
}

impl Sqlite {
    /// The clients and tickets of all waiters whose turn it is.
    pub(super) async fn due(
        &self,
        conn: &mut Connection,
        name: &LockName,
    ) -> sqlx_core::Result<Vec<(Uuid, i64)>> {
        sqlx_core::query_as::query_as(self.sql.due_waiters.get())
            .bind(name.as_str())
            .fetch_all(conn.get())
            .await
    }

    /// Notifies the waiters of other clients. Returns the tickets of those of this client.
    pub(super) fn wake(&self, conn: &Connection, due: impl IntoIterator<Item = (Uuid, i64)>) -> Vec<i64> {
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
