//! How a release wakes a waiter of another process.
//!
//! A client that waits parks a connection: it holds `GET_LOCK('lockwell_CLIENT')`, by which its connection id can be found,
//! and runs one statement again and again, which looks whose turn it is and otherwise sleeps (on MariaDB it waits for a name
//! that nobody gives up, see `hold.rs`). A release that finds a waiter of that client sends `KILL QUERY` for this id, once its
//! own change is committed.
//!
//! * A `KILL QUERY` that meets a connection between two statements is dropped without a word. The next statement begins
//!   after the release was committed, and looks before it sleeps: so it sees what the release has written.
//! * Nothing else runs on the parked connection, and its id is looked up in the statement that kills. So nobody else's
//!   statement is hit. A proxy may carry out each statement on another connection: then the one that has the name is not
//!   the one that answers. Whoever finds that out parks nothing, or kills nothing, and the waiters ask every 20 ms.
//! * The server ends a sleep by itself, since `KILL` can fail (another account may not do it) and the dead wake nobody.
//!   When a sleep that ended so turns out to have missed a turn, the sleeps are short until enough kills have been heard.
//! * When the client is gone, its connection ends, and with it the name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::hold::{Holder, ask_number, takes_name};
use super::{Conn, MySql, number, session};
use crate::database::{Database, Verdict};
use crate::table::Sql;

/// How long the server sleeps when kills arrive.
const LONG: Duration = Duration::from_secs(1);
/// How long it sleeps when they may not arrive, or when a waiter that was told may not have asked yet.
const SHORT: Duration = Duration::from_millis(20);
/// How much later than that an answer may come before the connection counts as dead.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How long the connection that kills is kept.
const IDLE: Duration = Duration::from_secs(20);

/// What is known about kills on this database.
#[derive(Debug, Default)]
pub(super) struct Push {
    /// Something between us and the server gives us other connections than ours.
    refused: AtomicBool,
    /// A waiter has another account than ours.
    denied: AtomicBool,
}

impl Push {
    fn refuse(&self, why: &str) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            tracing::info!(why, "releases of other processes do not wake waiters here: they ask every 20 ms");
        }
    }
}

/// The name that the parked connection of a client holds. The statements build the same one.
fn name(client: Uuid) -> String {
    format!("lockwell_{}", client.simple())
}

/// A parked connection. What it hears goes through a channel, since a statement of sqlx must not be dropped half-way.
#[derive(Debug)]
pub struct Parked {
    heard: mpsc::Receiver<sqlx::Result<i64>>,
    task: JoinHandle<()>,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Parked {
    /// The next ticket whose turn it is.
    pub(super) async fn next(&mut self) -> sqlx::Result<i64> {
        self.heard.recv().await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }
}

impl MySql {
    /// Parks a connection. `None`: kills would not arrive, or hit others.
    pub(super) async fn park(&self, client: Uuid) -> sqlx::Result<Option<Parked>> {
        if self.push.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut conn = session::open(&self.connect).await?;
        // One that we have lost without a word is to give the name back soon.
        let question = "SET SESSION wait_timeout = 5; SELECT 0 /*M! + 1 */".to_owned();
        let is_mariadb = ask_number(&mut conn, question).await? == Some(1);
        match takes_name(&mut conn, &name(client)).await {
            Ok(true) => (),
            Ok(false) => {
                self.push.refuse("a name that a connection takes is not found at that connection");
                return Ok(None);
            }
            // A cluster may not have such names at all.
            Err(sqlx::Error::Database(error)) if self.verdict(&*error) == Verdict::Fatal => {
                self.push.refuse(error.message());
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let (tell, heard) = mpsc::channel(64);
        let opening = is_mariadb.then(|| {
            let connect = self.connect.clone();
            tokio::spawn(async move { Holder::open(&connect).await })
        });
        let spot = Spot {
            conn,
            client,
            asleep: self.sql.due.clone(),
            blocked: self.sql.due_blocked.clone(),
            opening,
        };
        let push = Arc::clone(&self.push);
        let task = tokio::spawn(async move {
            if let Err(error) = spot.stay(&push, &tell).await {
                // Nobody listens any more: then nobody need know.
                tell.send(Err(error)).await.unwrap_or_default();
            }
        });
        Ok(Some(Parked { heard, task }))
    }

    /// Wakes these clients, which wait for what has been committed. Another connection does it: nobody who releases should
    /// wait for the kills, of which there can be one for each client that waits.
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

/// Sends kills, over a connection of its own.
struct Killer {
    connect: MySqlConnectOptions,
    push: Arc<Push>,
    told: mpsc::UnboundedReceiver<Uuid>,
}

impl Killer {
    async fn run(mut self) {
        let mut conn = None;
        loop {
            let next = tokio::time::timeout(IDLE, self.told.recv()).await;
            let first = match next {
                Ok(Some(client)) => client,
                Ok(None) => return,
                Err(_) => {
                    conn = None;
                    continue;
                }
            };
            // One kill is enough for all that was released meanwhile.
            let mut clients = BTreeSet::from([first]);
            while let Ok(client) = self.told.try_recv() {
                clients.insert(client);
            }
            match tokio::time::timeout(PATIENCE, self.kill(conn.take(), clients)).await {
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
    ) -> sqlx::Result<Option<MySqlConnection>> {
        if self.push.refused.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut conn = if let Some(conn) = conn {
            conn
        } else {
            let mut conn = session::open(&self.connect).await?;
            // Whether what we kill is what we have looked up.
            if !takes_name(&mut conn, &name(Uuid::from_u128(rand::random()))).await? {
                self.push.refuse("a name that a connection takes is not found at that connection");
                return Ok(None);
            }
            conn
        };
        for client in clients {
            let kill = format!("KILL QUERY IS_USED_LOCK('{}')", name(client));
            match sqlx::raw_sql(AssertSqlSafe(kill)).execute(&mut conn).await {
                Ok(_) => (),
                Err(sqlx::Error::Database(error)) if number(&*error) == 1095 => {
                    if !self.push.denied.swap(true, Ordering::Relaxed) {
                        tracing::info!("a waiter has another account and cannot be woken: it asks instead");
                    }
                }
                // It is not parked any more, or was woken by somebody else.
                Err(sqlx::Error::Database(error)) if [1094, 1317].contains(&number(&*error)) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(conn))
    }
}

/// Whether kills can be relied upon.
#[derive(Debug, Default)]
struct Trust {
    /// How many have to be heard until then.
    needed: u32,
    missed: u32,
}

impl Trust {
    fn heard(&mut self) {
        self.needed = self.needed.saturating_sub(1);
    }

    fn missed(&mut self) {
        self.missed = (self.missed + 1).min(6);
        self.needed = 1 << self.missed;
    }
}

/// What came of one statement.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Killed,
    Slept,
    Turns(String),
    /// The name that it waited for had no holder.
    Unblocked,
    /// Another connection has the name.
    Foreign,
}

/// A connection that is to be parked.
struct Spot {
    conn: MySqlConnection,
    client: Uuid,
    /// The statement that sleeps.
    asleep: Sql,
    /// The one that waits for a name.
    blocked: Sql,
    opening: Option<JoinHandle<sqlx::Result<Option<Holder>>>>,
}

impl Spot {
    async fn stay(mut self, push: &Push, tell: &mpsc::Sender<sqlx::Result<i64>>) -> sqlx::Result<()> {
        let name = name(self.client);
        let (mut trust, mut told, mut slept_long) = (Trust::default(), String::new(), false);
        let (mut holder, mut has_blocked) = (None, false);
        loop {
            // Until then it sleeps, so that nobody waits for the second connection.
            if let Some(opened) = self.opening.take_if(|opening| opening.is_finished()) {
                holder = opened.await.ok().and_then(Result::ok).flatten();
            }
            let sleep = if told.is_empty() && trust.needed == 0 { LONG } else { SHORT };
            let due = if holder.is_some() { &self.blocked } else { &self.asleep };
            let mut statement = sqlx::query_scalar(due.get()).bind(&name).bind(self.client).bind(&told);
            if let Some(holder) = &mut holder {
                holder.keep().await?;
                statement = statement.bind(holder.name());
            }
            let statement = statement.bind(sleep.as_secs_f64());
            let answer = tokio::time::timeout(sleep + PATIENCE, statement.fetch_one(&mut self.conn)).await;
            let Ok(answer) = answer else {
                return Err(sqlx::Error::Protocol("the parked connection does not answer".into()));
            };
            let outcome = outcome(answer)?;
            has_blocked |= holder.is_some() && matches!(outcome, Outcome::Killed | Outcome::Slept);
            match outcome {
                Outcome::Killed => {
                    trust.heard();
                    (told, slept_long) = (String::new(), false);
                }
                Outcome::Slept => {
                    slept_long = sleep == LONG;
                    told.clear();
                }
                Outcome::Turns(tickets) => {
                    if slept_long {
                        tracing::debug!("a turn was not announced");
                        trust.missed();
                    }
                    slept_long = false;
                    for ticket in tickets.split(',').filter_map(|ticket| ticket.parse().ok()) {
                        if tell.send(Ok(ticket)).await.is_err() {
                            return Ok(());
                        }
                    }
                    // They are not told again before they had time to ask, unless somebody wakes us.
                    told = if told.is_empty() { tickets } else { format!("{told},{tickets}") };
                }
                Outcome::Unblocked if has_blocked => {
                    return Err(sqlx::Error::Protocol(
                        "the connection that a parked one waits for was lost".into(),
                    ));
                }
                // The two connections may lead to different servers. It sleeps for good then.
                Outcome::Unblocked => holder = None,
                Outcome::Foreign => {
                    push.refuse("another connection has the name of the parked one");
                    return Err(sqlx::Error::Protocol("the parked connection was exchanged".into()));
                }
            }
        }
    }
}

fn outcome(answer: sqlx::Result<String>) -> sqlx::Result<Outcome> {
    let text = match answer {
        Err(sqlx::Error::Database(error)) if number(&*error) == 1317 => return Ok(Outcome::Killed),
        answer => answer?,
    };
    Ok(match text.split_at_checked(1) {
        Some(("t", tickets)) => Outcome::Turns(tickets.to_owned()),
        Some(("s", "0")) => Outcome::Slept,
        Some(("s", "2")) => Outcome::Unblocked,
        Some(("s", _)) => Outcome::Killed,
        _ => Outcome::Foreign,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_parked_statement() {
        let read = |text: &str| outcome(Ok(text.to_owned())).unwrap();
        assert_eq!(read("t5,7"), Outcome::Turns("5,7".to_owned()));
        assert_eq!(read("s0"), Outcome::Slept);
        // MySQL does not fail where only a sleep was interrupted.
        assert_eq!(read("s1"), Outcome::Killed);
        assert_eq!(read("s2"), Outcome::Unblocked);
        assert_eq!(read("p"), Outcome::Foreign);
    }

    #[test]
    fn the_more_turns_are_missed_the_more_kills_must_be_heard() {
        let mut trust = Trust::default();
        for needed in [2, 4, 8, 16, 32, 64, 64] {
            trust.missed();
            assert_eq!(trust.needed, needed);
        }
        (0..64).for_each(|_| trust.heard());
        assert_eq!(trust.needed, 0);
    }
}
