//! A release grants the lock to its first waiter.
//!
//! A statement that grants may wait for the disk, and while a transaction that notifies does so, no other one of
//! the whole server can commit. So the notifications are a second transaction, which waits for nothing, in
//! the same message: the way to the waiter is as short as before. Only the simple protocol carries two
//! transactions in one message. A session of our own has the statement prepared under a name, so that it is
//! not planned anew each time. A lazy grant waits for nothing, so `hand_first` notifies by itself then.
//!
//! If the server fails between the two, nobody is notified, and its queue is lost anyway. If the connection
//! fails, the server carries out the whole message all the same, since it has read it.

use std::slice::from_ref;

use futures_util::StreamExt;
use lockwell_core::Claim;
use sqlx_core::Either;
use sqlx_core::from_row::FromRow;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_postgres::{PgConnection, PgRow};
use uuid::Uuid;

use super::bound::BoundStatement;
use super::driver::{Conn, Postgres};
use super::grace::{LOOKS, is_no_grant};
use super::named::NamedSql;
use super::plan::{Asked, Step, plan};
use super::session::FOR_ONE;
use crate::dialect::Dialect;
use crate::dialect::error::{class_of, ended};
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::hints::Hint;
use crate::words::{ErrorClass, Freed, Notification};

impl Postgres {
    /// Frees each lock, or grants it to its first waiter.
    pub(super) async fn release_each(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
    ) -> sqlx_core::Result<Vec<Freed>> {
        if let [claim] = claims {
            return Ok(vec![self.release_one(conn, claim).await?]);
        }
        let many = &self.sql.hand_over_many;
        let rows: Vec<HandedOne> = self.carry_out(&mut *conn, many, false, claims).await?;
        let mut answers = Vec::with_capacity(claims.len());
        for (claim, (released, held, several, notification, again, durable)) in claims.iter().zip(rows) {
            answers.push(if released {
                self.handed(conn, claim, (several, notification, again, durable)).await?
            } else {
                Freed { blocked: held, ..Freed::default() }
            });
        }
        Ok(answers)
    }

    async fn release_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Freed> {
        // Of the next claim it is not known any more that another holds the lock.
        self.hints.forget(Hint::Held, claim.name());
        for step in plan(Asked::Release, self.hints.of(claim.name())) {
            let handed = match step {
                Step::Release => {
                    let short = self.statement(&self.sql.release).of(claim);
                    if short.value::<i64>(&mut *conn).await?.is_some() {
                        return Ok(Freed::new(true, Vec::new()));
                    }
                    continue;
                }
                Step::HandFirst => self.hand_first(&mut *conn, claim).await?,
                _ => self.hand(&mut *conn, &self.sql.hand_over, claim).await?,
            };
            if let Some(handed) = handed {
                // A claim that held nothing, such as one that has left the queue, tells nothing of the mark.
                if *step == Step::HandOver {
                    self.hints.forget(Hint::Marked, claim.name());
                }
                return self.handed(conn, claim, handed).await;
            }
        }
        Ok(Freed::default())
    }

    /// Grants the lock to its first waiter by this statement. `None`: the claim did not hold the lock.
    async fn hand(
        &self,
        conn: &mut Conn,
        sql: &NamedSql,
        claim: &Claim,
    ) -> sqlx_core::Result<Option<Handed>> {
        Ok(self.carry_out(conn, sql, false, from_ref(claim)).await?.pop())
    }

    /// The same for the usual case: a waiter is there, and can be granted the lock. `None`: nothing was done.
    async fn hand_first(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Option<Handed>> {
        // Lazy grants wait for no disk, so it notifies by itself.
        let (sql, notifies) = (&self.sql.hand_first, self.grace.lazy.is_some());
        let handed: sqlx_core::Result<Vec<Handed>> =
            self.carry_out(conn, sql, notifies, from_ref(claim)).await;
        match handed {
            // Another transaction that notifies may take long to commit, and the queue of notifications may
            // be full. The release does not depend on that.
            Err(error @ sqlx_core::Error::Database(_))
                if notifies && matches!(class_of(self, &error), ErrorClass::Blocked | ErrorClass::Fatal) =>
            {
                Ok(None)
            }
            handed => Ok(handed?.pop().filter(|(several, ..)| several.is_some())),
        }
    }

    /// The result of a release.
    async fn handed(&self, conn: &mut Conn, claim: &Claim, mut handed: Handed) -> sqlx_core::Result<Freed> {
        if let (.., true, _) = handed {
            let mut follow_up = FollowUp::default();
            // This statement sees each waiter that entered before the lock was free. One that entered later
            // has seen that.
            handed = loop {
                let looked = self.hand(conn, &self.sql.hand_on, claim).await;
                if let Some(looked) = follow_up.settle(self, looked) {
                    break looked?.unwrap_or_default();
                }
            };
        }
        let mut freed = Freed::new(true, Vec::new());
        match handed {
            (Some(true), ..) => freed.next = self.due_waiters(conn, claim.name()).await?,
            (_, Some(text), ..) => freed.notification = Notification::parse(&text),
            _ => (),
        }
        Ok(freed)
    }

    /// Carries out a statement that hands the locks of these claims over. It grants where that is possible. If the
    /// clock or the mark comes in between, it is sent again. `notifies`: it notifies by itself.
    async fn carry_out<T>(
        &self,
        conn: &mut Conn,
        named: &NamedSql,
        notifies: bool,
        claims: &[Claim],
    ) -> sqlx_core::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let (client, mut tries) = (conn.client(), 0..LOOKS);
        loop {
            let sent: sqlx_core::Result<Vec<T>> = if notifies {
                bound(self.statement(&named.sql), claims, client).rows(&mut *conn).await
            } else {
                self.commit_and_notify(&mut *conn, named, bound(named.call(), claims, client)).await
            };
            if !sent.as_ref().is_err_and(is_no_grant) || tries.next().is_none() {
                return sent;
            }
        }
    }

    /// Carries the statement out and commits it, and then sends the notifications that it has left. `bound`
    /// are its arguments.
    async fn commit_and_notify<T>(
        &self,
        conn: &mut Conn,
        named: &NamedSql,
        bound: BoundStatement<'_>,
    ) -> sqlx_core::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        let notes = self.notes();
        let sent = if self.session.is_shared() {
            let text = format!("BEGIN; {FOR_ONE}{}; COMMIT; {notes}", bound.text());
            send(conn, text, settings() + 3).await
        } else {
            // An `EXECUTE` that finds no statement would be an error in the server's log, with the owner id.
            let mut missing = vec![named, &self.sql.send_notes];
            missing.retain(|one| !conn.prepared.contains(&one.name));
            let prepare: String = missing.iter().map(|one| one.prepare()).collect();
            let execute = format!("BEGIN; EXECUTE {}({}); COMMIT; {notes}", named.name, bound.list());
            let sent = send(conn, prepare + &execute, missing.len() + 3).await;
            conn.prepared.extend(missing.into_iter().take(sent.done).map(|one| one.name.clone()));
            sent
        };
        match sent.error {
            // Nothing of it may stay open: later statements would join it.
            Some(error) if !sent.committed => {
                if !matches!(error, sqlx_core::Error::Database(_)) {
                    return Err(error);
                }
                return ended(
                    Err(error),
                    sqlx_core::raw_sql::raw_sql("ROLLBACK").execute(&mut **conn).await.map(drop),
                );
            }
            Some(error) => self.notify_again(conn, error).await?,
            None => (),
        }
        sent.rows.iter().map(T::from_row).collect()
    }

    /// The notifications that hand-overs have left, as a text for the simple protocol.
    fn notes(&self) -> String {
        let NamedSql { sql, name } = &self.sql.send_notes;
        if self.session.is_shared() { format!("{FOR_ONE}{}", sql.text()) } else { format!("EXECUTE {name}") }
    }

    /// The locks are handed over, but the notifications were not sent.
    async fn notify_again(&self, conn: &mut Conn, error: sqlx_core::Error) -> sqlx_core::Result<()> {
        let (mut follow_up, mut outcome) = (FollowUp::default(), Err(error));
        loop {
            let is_sent = outcome.is_ok();
            if let Some(settled) = follow_up.settle(self, outcome) {
                if settled.is_ok() && !is_sent {
                    // The waiters find out by themselves, long before these notes could be sent.
                    let forget =
                        sqlx_core::raw_sql::raw_sql("SET lockwell.notes = ''").execute(&mut **conn).await;
                    forget.map_err(in_doubt)?;
                }
                return settled;
            }
            let notes = AssertSqlSafe(self.notes());
            outcome = sqlx_core::raw_sql::raw_sql(notes).execute(&mut **conn).await.map(drop);
        }
    }
}

/// Whether the claim held the lock, whether a transaction has locked its row, then [`Handed`].
type HandedOne = (bool, bool, Option<bool>, Option<String>, bool, bool);

/// Whether all waiters must be notified, the notification for a waiter of this client, and whether to look
/// again.
type Handed = (Option<bool>, Option<String>, bool, bool);

/// The arguments: those of one claim, or arrays.
fn bound<'a>(statement: BoundStatement<'a>, claims: &[Claim], client: Uuid) -> BoundStatement<'a> {
    let bound = match claims {
        [claim] => statement.of(claim),
        many => statement.of_each(many.iter()),
    };
    bound.bind(client)
}

/// What the server has answered to a message.
#[derive(Default)]
struct Sent {
    /// The rows of the transaction.
    rows: Vec<PgRow>,
    /// How many of its statements were carried out.
    done: usize,
    committed: bool,
    error: Option<sqlx_core::Error>,
}

/// Sends a message whose first so many statements end with the commit.
async fn send(conn: &mut PgConnection, text: String, until_commit: usize) -> Sent {
    let mut sent = Sent::default();
    let mut answers = sqlx_core::raw_sql::raw_sql(AssertSqlSafe(text)).fetch_many(conn);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Either::Right(row)) if !sent.committed => sent.rows.push(row),
            Ok(Either::Right(_)) => (),
            Ok(Either::Left(_)) => {
                sent.done += 1;
                sent.committed = sent.done >= until_commit;
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
