//! The kills by which a release wakes waiters of other clients; see `push.rs`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::backend::{lock, unique_bits};
use sqlx_core::error::DatabaseError;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::{MySqlConnectOptions, MySqlConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::hold::takes_name;
use super::session;
use crate::dialect::answers::mysql::number;
use crate::sql::login::Login;

/// How long the connection that kills is kept.
const IDLE: Duration = Duration::from_secs(20);

/// How often the end of a client tries to end its parked connection.
const KILLS: usize = 4;

/// What is known about kills on this database.
#[derive(Debug, Default)]
pub(super) struct Push {
    /// Something between us and the server gives us other connections than ours.
    pub(super) refused: AtomicBool,
    /// A waiter has another account than ours.
    denied: AtomicBool,
    /// The parked connections that are to end, with their clients.
    ending: Mutex<Vec<(Uuid, JoinHandle<sqlx_core::Error>)>>,
}

impl Push {
    pub(super) fn refuse(&self, why: &str) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::info!(
                lockwell.why = why,
                "releases of other processes do not wake waiters here: they ask every 20 ms"
            );
        }
    }

    /// A parked connection ends after its present statement.
    pub(super) fn note_ending(&self, client: Uuid, parked: JoinHandle<sqlx_core::Error>) {
        let mut ending = lock(&self.ending);
        ending.retain(|(_, parked)| !parked.is_finished());
        ending.push((client, parked));
    }

    /// Lets those of a client end now, and waits for them for a moment.
    pub(super) async fn hasten(&self, conn: &mut MySqlConnection, client: Uuid) {
        let ending: Vec<_> = {
            let mut ending = lock(&self.ending);
            ending.extract_if(.., |(of, _)| *of == client).map(|(_, parked)| parked).collect()
        };
        if self.refused.load(Ordering::Relaxed) {
            return;
        }
        for mut parked in ending {
            for _ in 0..KILLS {
                // One that comes between two statements ends nothing.
                drop(tokio::time::timeout(session::FAREWELL, kill(conn, client)).await);
                if tokio::time::timeout(session::FAREWELL / 4, &mut parked).await.is_ok() {
                    break;
                }
            }
        }
    }

    /// Notes what the server has said to a kill.
    pub(super) fn note_kill(&self, may_kill: &mut Option<bool>, error: &dyn DatabaseError) {
        match number(error) {
            // It is not parked any more, was woken by somebody else, or there was nobody to be woken.
            1094 | 1317 => (),
            1095 => {
                if !self.denied.swap(true, Ordering::Relaxed) {
                    tracing::info!("a waiter has another account and cannot be woken: it asks instead");
                }
            }
            _ => {
                tracing::debug!(%error, "a release cannot send a kill itself");
                *may_kill = Some(false);
            }
        }
    }
}

/// The name that the parked connection of a client holds. The statements build the same one.
pub(super) fn name(client: Uuid) -> String {
    format!("lockwell_{}", client.simple())
}

/// Sends kills, over a connection of its own.
pub(super) struct Killer {
    pub(super) connect: Login<MySqlConnectOptions>,
    pub(super) push: Arc<Push>,
    pub(super) told: mpsc::UnboundedReceiver<Uuid>,
}

impl Killer {
    pub(super) async fn run(mut self) {
        let mut conn = None;
        loop {
            let next = tokio::time::timeout(IDLE, self.told.recv()).await;
            let first = match next {
                Ok(Some(client)) => client,
                ended => {
                    if let Some(conn) = conn.take() {
                        session::close(conn).await;
                    }
                    match ended {
                        Ok(_) => return,
                        Err(_) => continue,
                    }
                }
            };
            // One kill is enough for all that was released meanwhile.
            let mut clients = BTreeSet::from([first]);
            while let Ok(client) = self.told.try_recv() {
                clients.insert(client);
            }
            match tokio::time::timeout(session::ANSWER_TIMEOUT, self.kill(conn.take(), clients)).await {
                Ok(Ok(kept)) => conn = kept,
                // Those who wait look by themselves after a second.
                Ok(Err(error)) => tracing::debug!(%error, "waiters could not be woken"),
                Err(_) => tracing::debug!("waiters could not be woken in time"),
            }
        }
    }

    /// Answers with the connection, if it can be used again.
    async fn kill(
        &self,
        conn: Option<MySqlConnection>,
        clients: BTreeSet<Uuid>,
    ) -> sqlx_core::Result<Option<MySqlConnection>> {
        if self.push.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut conn = if let Some(conn) = conn {
            conn
        } else {
            let mut conn = session::open(&self.connect).await?;
            // Whether what we kill is what we have looked up.
            if !takes_name(&mut conn, &name(Uuid::from_u128(unique_bits()))).await? {
                self.push.refuse("a name that a connection takes is not found at that connection");
                return Ok(None);
            }
            conn
        };
        for client in clients {
            match kill(&mut conn, client).await {
                Ok(()) => (),
                Err(sqlx_core::Error::Database(error)) if [1094, 1095, 1317].contains(&number(&*error)) => {
                    self.push.note_kill(&mut None, &*error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(conn))
    }
}

/// Ends the statement of the parked connection of a client.
async fn kill(conn: &mut MySqlConnection, client: Uuid) -> sqlx_core::Result<()> {
    let kill = format!("KILL QUERY IS_USED_LOCK('{}')", name(client));
    sqlx_core::raw_sql::raw_sql(AssertSqlSafe(kill)).execute(conn).await.map(drop)
}
