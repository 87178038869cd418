//! Statements that grant a freed lock to its first waiter: how they are sent.
//!
//! Such a statement waits for the disk, and while a transaction that notifies does so, no other one of the
//! whole server can commit. So the notifications are a second transaction, which waits for nothing, in the
//! same message: the way to the waiter is as short as before. Only the simple protocol carries two
//! transactions in one message. A session of our own has the statement prepared under a name, so that it is
//! not planned anew each time.
//!
//! If the server fails between the two, nobody is notified, and its queue is lost anyway. If the connection
//! fails, the server carries out the whole message all the same, since it has read it.

use futures_util::StreamExt;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Either, FromRow};

use super::bound::BoundStatement;
use super::driver::Postgres;
use super::named::NamedSql;
use super::session::FOR_ONE;
use crate::dialect::error::ended;
use crate::dialect::follow_up::FollowUp;

/// What the server has answered to a message.
#[derive(Default)]
struct Sent {
    /// The rows of the transaction.
    rows: Vec<PgRow>,
    committed: bool,
    error: Option<sqlx::Error>,
}

/// Sends a message whose first so many statements end with the commit.
async fn send(conn: &mut PgConnection, text: String, until_commit: usize) -> Sent {
    let (mut sent, mut done) = (Sent::default(), 0);
    let mut answers = sqlx::raw_sql(AssertSqlSafe(text)).fetch_many(conn);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Either::Right(row)) if !sent.committed => sent.rows.push(row),
            Ok(Either::Right(_)) => (),
            Ok(Either::Left(_)) => {
                done += 1;
                sent.committed = done >= until_commit;
            }
            Err(error) => sent.error = Some(error),
        }
    }
    sent
}

/// How many statements come before one that must set everything itself.
fn settings() -> usize {
    FOR_ONE.matches(';').count()
}

impl Postgres {
    /// The notifications that hand-overs have left, as a text for the simple protocol.
    fn notes(&self, named: &NamedSql) -> String {
        if self.session.is_shared() {
            return format!("{FOR_ONE}{}", self.sql.send_notes.text());
        }
        format!("EXECUTE {}_notes", named.name)
    }

    /// Carries the statement out and commits it, and then sends the notifications that it has left. `bound`
    /// are its arguments.
    pub(super) async fn commit_and_notify<T>(
        &self,
        conn: &mut PgConnection,
        named: &NamedSql,
        bound: BoundStatement<'_>,
    ) -> sqlx::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let notes = self.notes(named);
        let sent = if self.session.is_shared() {
            let text = format!("BEGIN; {FOR_ONE}{}; COMMIT; {notes}", bound.text());
            send(conn, text, settings() + 3).await
        } else {
            let text = format!("BEGIN; EXECUTE {}({}); COMMIT; {notes}", named.name, bound.list());
            let sent = send(&mut *conn, text.clone(), 3).await;
            if is_unprepared(&sent) {
                let NamedSql { sql, name } = named;
                let (sql, notes) = (sql.text(), self.sql.send_notes.text());
                let prepare = format!("ROLLBACK; PREPARE {name} AS {sql}; PREPARE {name}_notes AS {notes}");
                send(&mut *conn, format!("{prepare}; {text}"), 6).await
            } else {
                sent
            }
        };
        match sent.error {
            // Nothing of it may stay open: later statements would join it.
            Some(error) if !sent.committed => {
                if !matches!(error, sqlx::Error::Database(_)) {
                    return Err(error);
                }
                return ended(Err(error), sqlx::raw_sql("ROLLBACK").execute(conn).await.map(drop));
            }
            Some(error) => self.notify_again(conn, named, error).await?,
            None => (),
        }
        sent.rows.iter().map(T::from_row).collect()
    }

    /// The locks are handed over, but the notifications were not sent.
    async fn notify_again(
        &self,
        conn: &mut PgConnection,
        named: &NamedSql,
        error: sqlx::Error,
    ) -> sqlx::Result<()> {
        let (mut follow_up, mut outcome) = (FollowUp::default(), Err(error));
        loop {
            if let Some(settled) = follow_up.settle(self, outcome) {
                return settled;
            }
            let notes = AssertSqlSafe(self.notes(named));
            outcome = sqlx::raw_sql(notes).execute(&mut *conn).await.map(drop);
        }
    }
}

/// Whether the session does not have the statement yet: "invalid SQL statement name".
fn is_unprepared(sent: &Sent) -> bool {
    let Some(sqlx::Error::Database(error)) = &sent.error else { return false };
    !sent.committed && error.code().as_deref() == Some("26000")
}
