//! The connections and tables of SQLite.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockwell_core::backend::Waiters;
use lockwell_core::{Capabilities, Finding, Requirement};

use super::connection::Connection;
use super::driver::Sqlite;
use super::sockets::{Inbox, Message, Received, Sent, Sockets};
use super::wake::{pushed, warn_once};
use crate::dialect::database::{Database, promised};
use crate::dialect::records::is_missing;
use crate::ids::AsUuid;
use crate::sql::table::Sql;
use crate::words::Notification;

impl Database for Sqlite {
    const IS_REMOTE: bool = false;
    // The thread of the connection answers with each row, and at the end of each statement.
    const PARTS: u8 = 8;

    /// A lost message is rare, and so is the end of a lease of which a waiter does not know.
    const ASKS_EVERY: Option<Duration> = Some(Duration::from_millis(150));

    type Conn = Connection;
    type Subscription = Inbox;

    fn capabilities(&self) -> Capabilities {
        promised("sqlite").promising([
            Requirement::HerdFree,
            Requirement::FailoverSafe,
            Requirement::VerifyInSqlite,
        ])
    }

    /// The files are closed when this returns.
    async fn shut(&self, conn: Connection) {
        conn.close().await;
    }

    async fn connect(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Connection> {
        let is_first = !self.opening.known.load(Ordering::Relaxed);
        let mut conn = Connection::open(&self.opening, waiters).await?;
        // The first connection reports what is wrong with the tables. A later one that finds none has a new
        // file: one that replaced the old file, or that was created just now.
        if self.create && !is_first && self.check(&mut conn).await.is_err_and(|error| is_empty(&error)) {
            self.create(&mut conn).await?;
        }
        for made in self.sql.temporary() {
            sqlx_core::query::query(made.get()).execute(conn.get()).await?;
        }
        Ok(conn)
    }

    fn intact(&self, conn: &Connection) -> sqlx_core::Result<()> {
        conn.check()
    }

    async fn check(&self, conn: &mut Connection) -> sqlx_core::Result<()> {
        let conn = conn.get();
        for check in self.sql.checks() {
            sqlx_core::query::query(check.get()).fetch_optional(&mut *conn).await?;
        }
        let records = sqlx_core::query::query(self.sql.check_records.get()).fetch_optional(conn).await;
        match &records {
            Err(error) if !is_missing(error) => return records.map(drop),
            answer => self.hints.note_records(answer.is_ok()),
        }
        Ok(())
    }

    async fn create(&self, conn: &mut Connection) -> sqlx_core::Result<()> {
        // The mode is that of the last write. The first grant syncs the tables at the latest.
        let conn = conn.get();
        for statement in self.sql.tables() {
            sqlx_core::query::query(statement.get()).execute(&mut *conn).await?;
        }
        Ok(())
    }

    fn ddl(&self) -> String {
        Sql::script(self.sql.tables())
    }

    async fn version(&self, conn: &mut Connection) -> sqlx_core::Result<Option<i64>> {
        conn.version().await
    }

    async fn pause(&self, conn: &mut Connection, pause: Duration) -> sqlx_core::Result<()> {
        conn.pause(pause).await
    }

    /// `None`: there can be no socket, and the log is watched.
    async fn subscribe(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Option<Inbox>> {
        let client = waiters.client().as_uuid();
        let bound = Sockets::of(self.opening.connect.get_filename()).and_then(|sockets| sockets.bind(client));
        match bound {
            Ok(inbox) => Ok(Some(inbox)),
            Err(error) if is_for_good(error.kind()) => {
                warn_once(&error.to_string());
                Ok(None)
            }
            Err(error) => Err(sqlx_core::Error::Io(error)),
        }
    }

    /// A socket that somebody has removed is made anew.
    async fn probe(&self, conn: &mut Connection, number: i64) -> sqlx_core::Result<bool> {
        match conn.sockets().send(conn.client(), Message { ticket: number, ..Message::default() }) {
            Sent::Delivered => Ok(true),
            Sent::Gone | Sent::Refused => {
                Err(sqlx_core::Error::Protocol("the socket of this client was removed or replaced".into()))
            }
            Sent::Failed => Err(sqlx_core::Error::Protocol("nothing could be sent to a socket".into())),
        }
    }

    async fn notification(inbox: &mut Inbox) -> sqlx_core::Result<Option<Notification>> {
        let received = inbox.receive().await?;
        Ok(Some(match received {
            Received::One(Message { ticket, token: 0, .. }) => Notification::to_recheck(ticket),
            Received::One(message) => Notification::of_grant(message.ticket, pushed(message)),
            Received::Many => Notification::to_all(),
        }))
    }

    async fn names(&self, conn: &mut Connection) -> sqlx_core::Result<Vec<String>> {
        sqlx_core::query_scalar::query_scalar(self.sql.names.get()).fetch_all(conn.get()).await
    }

    async fn examine(&self, conn: &mut Connection) -> sqlx_core::Result<Vec<Finding>> {
        self.findings(conn).await
    }
}

/// Whether a client that could not make its socket need not try again. There may be too many open files for a
/// while.
fn is_for_good(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error, PermissionDenied | ReadOnlyFilesystem | Unsupported | InvalidInput)
}

/// Whether the tables are missing.
fn is_empty(error: &sqlx_core::Error) -> bool {
    matches!(error, sqlx_core::Error::Database(error) if error.message().contains("no such table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_client_that_had_no_descriptor_tries_again() {
        use rustix::io::Errno;
        let is_for_good = |error: Errno| is_for_good(io::Error::from(error).kind());
        assert!([Errno::ACCESS, Errno::ROFS, Errno::OPNOTSUPP].into_iter().all(is_for_good));
        let passing = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOSPC, Errno::NOENT];
        assert!(!passing.into_iter().any(is_for_good));
    }
}
