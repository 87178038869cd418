//! How a release wakes a waiter of another process, and tells it what it has granted.
//!
//! A client that waits parks a connection: it holds `GET_LOCK('lockwell_CLIENT')`, by which its connection id
//! can be found, and runs one message of statements again and again (`park`), which looks for grants and
//! turns, otherwise sleeps, and looks again. A release that finds a waiter of that client sends `KILL QUERY`
//! for this id, once its own change is committed: in the message of the release itself, so it takes one way
//! to the server and one from there until the waiter has its grant.
//!
//! * A `KILL QUERY` that meets a connection between two messages is dropped without a word. The next message
//!   begins after the release was committed, and looks before it sleeps: so it sees what the release has
//!   written. One that meets the first look is an error, and the message is sent again. One that comes while
//!   it sleeps, or is about to, ends the sleep; the last look sees what was committed before the kill. A
//!   grant stays in the table until the lease that it names has ended, or its lock is released: a message
//!   that is lost with its connection is sent again over the next one.
//! * Nothing else runs on the parked connection, and its id is looked up in the statement that kills. So
//!   nobody else's statement is hit. A proxy may carry out each statement on another connection: then the one
//!   that has the name is not the one that answers. Whoever finds that out parks nothing, or kills nothing,
//!   and the waiters ask every 20 ms.
//! * The server ends a sleep by itself, since `KILL` can fail (another account may not do it) and the dead
//!   wake nobody. When a sleep that ended so turns out to have missed something, the sleeps are short until
//!   enough kills have been heard.
//! * When the client is gone, its connection ends, and with it the name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockwell_core::backend::{Waiters, unique_bits};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::driver::{Conn, MySql};
use super::hold::{Holder, ask_number, takes_name};
use super::kill::{Killer, Push, name};
use super::park::{ParkedSession, take_name};
use super::session;
use crate::dialect::database::Database;
use crate::ids::AsUuid;
use crate::words::ErrorClass;

/// A parked connection: the task that has it, and tells the waiters what it hears. It is a task, since a
/// statement of sqlx must not be dropped half-way.
#[derive(Debug)]
pub struct Parked {
    client: Uuid,
    push: Arc<Push>,
    is_over: Arc<AtomicBool>,
    task: Option<JoinHandle<sqlx_core::Error>>,
}

/// The server logs a connection that breaks off.
impl Drop for Parked {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(task) = self.task.take() {
            self.push.note_ending(self.client, task);
        }
    }
}

impl Parked {
    /// Why it has ended.
    pub(super) async fn end(&mut self) -> sqlx_core::Error {
        match &mut self.task {
            Some(task) => task.await.unwrap_or(sqlx_core::Error::WorkerCrashed),
            None => sqlx_core::Error::WorkerCrashed,
        }
    }
}

impl MySql {
    /// Parks a connection. `None`: kills would not arrive, or hit others.
    pub(super) async fn park(&self, waiters: &Arc<Waiters>) -> sqlx_core::Result<Option<Parked>> {
        let client = waiters.client().as_uuid();
        if self.push.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut conn = session::open(&self.connect).await?;
        match take_name(&mut conn, client).await {
            Ok(true) => (),
            Ok(false) => {
                self.push.refuse("a name that a connection takes is not found at that connection");
                return Ok(None);
            }
            // A cluster may not have such names at all.
            Err(sqlx_core::Error::Database(error)) if self.class_of(&*error) == ErrorClass::Fatal => {
                self.push.refuse(error.message());
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let is_mariadb = ask_number(&mut conn, "SELECT 0 /*M! + 1 */".to_owned()).await? == Some(1);
        let opening = is_mariadb.then(|| {
            let connect = self.connect.clone();
            // A network that answers nothing must not keep the parked connection from its sleep for ever.
            let late = |_| Err(sqlx_core::Error::Io(std::io::ErrorKind::TimedOut.into()));
            tokio::spawn(async move {
                let opening = tokio::time::timeout(session::ANSWER_TIMEOUT, Holder::open(&connect));
                opening.await.unwrap_or_else(late)
            })
        });
        let spot = ParkedSession {
            connect: self.connect.clone(),
            conn,
            client,
            waiters: Arc::clone(waiters),
            whole: self.sql.park.clone(),
            for_grants: self.sql.park_for_grants.clone(),
            opening,
        };
        let (push, is_over) = (Arc::clone(&self.push), Arc::<AtomicBool>::default());
        let over = Arc::clone(&is_over);
        let task = tokio::spawn(async move { spot.stay(&push, &over).await });
        Ok(Some(Parked { client, push: Arc::clone(&self.push), is_over, task: Some(task) }))
    }

    /// Whether a release on this connection may send its kill itself.
    pub(super) fn may_kill(&self, conn: &Conn) -> bool {
        conn.may_kill == Some(true) && !self.push.refused.load(Ordering::Relaxed)
    }

    /// Finds out whether it may, once for each connection: whether what it kills is what it has looked up.
    pub(super) async fn learn_to_kill(&self, conn: &mut Conn) {
        if conn.may_kill.is_some() {
            return;
        }
        let name = name(Uuid::from_u128(unique_bits()));
        let learned = async {
            let takes = takes_name(&mut conn.inner, &name).await?;
            ask_number(&mut conn.inner, format!("SELECT RELEASE_LOCK('{name}')")).await.map(|_| takes)
        };
        // If the connection has failed, the next statement will say so.
        conn.may_kill = Some(learned.await.unwrap_or_else(|error: sqlx_core::Error| {
            tracing::debug!(%error, "a release cannot send a kill itself");
            false
        }));
    }

    /// Wakes these clients, which wait for what has been committed. Another connection does it: nobody who
    /// releases should wait for the kills, of which there can be one for each client that waits.
    pub(super) fn wake(&self, conn: &mut Conn, clients: impl IntoIterator<Item = Uuid>) {
        for client in clients {
            let killer = conn.killer.get_or_insert_with(|| {
                let (tell, told) = mpsc::unbounded_channel();
                let killer = Killer { connect: self.connect.clone(), push: Arc::clone(&self.push), told };
                // It ends by itself, once it has done all that it was told.
                drop(tokio::spawn(killer.run()));
                tell
            });
            if killer.send(client).is_err() {
                tracing::debug!("a waiter is not woken: the task for that is gone");
            }
        }
    }
}
