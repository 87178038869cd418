//! What the parked connection of a client waits for on MariaDB: a name that another connection of ours holds.
//!
//! All `SLEEP`s of a MariaDB server share one mutex, and each of them takes it when it begins and when it
//! ends. A `KILL` that finds it taken waits for 50 ms and tries again, up to forty times. Meanwhile it keeps
//! what other kills of that connection wait for; they keep the list of connections, and so nobody can
//! connect. Whoever waits in `GET_LOCK` does so by a mutex of its own. MySQL's `KILL` just waits for the
//! mutex, and its `GET_LOCK` knows whole seconds alone: there the parked connection sleeps.

use std::time::Duration;

use lockwell_core::Moment;
use lockwell_core::backend::unique_bits;
use sqlx_core::connection::Connection;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::{MySqlConnectOptions, MySqlConnection};
use uuid::Uuid;

use super::session::{self, ANSWER_TIMEOUT};
use crate::sql::login::Login;

/// How often the server is told that we are still there.
const SPEAK_EVERY: Duration = Duration::from_secs(5);

/// The connection that holds the name. It has nothing else to do, so that the name is held for as long as it
/// lives.
#[derive(Debug)]
pub(super) struct Holder {
    conn: MySqlConnection,
    name: String,
    speak_at: Moment,
}

impl Holder {
    /// `None`: the name is not found at the connection that took it.
    pub(super) async fn open(connect: &Login<MySqlConnectOptions>) -> sqlx_core::Result<Option<Self>> {
        let mut conn = session::open(connect).await?;
        // One that we have lost without a word is to end soon. Unlike a parked one, it says nothing by
        // itself.
        ask_number(&mut conn, "SET SESSION wait_timeout = 20; SELECT 0".to_owned()).await?;
        let name = format!("lockwell_hold_{}", Uuid::from_u128(unique_bits()).simple());
        let found = takes_name(&mut conn, &name).await?;
        Ok(found.then(|| Self { conn, name, speak_at: Moment::now().after(SPEAK_EVERY) }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn close(self) {
        session::close(self.conn).await;
    }

    /// Called between two statements of the parked connection.
    pub(super) async fn keep(&mut self) -> sqlx_core::Result<()> {
        if !self.speak_at.has_passed() {
            return Ok(());
        }
        self.speak_at = Moment::now().after(SPEAK_EVERY);
        let late = || {
            sqlx_core::Error::Protocol("the connection that a parked one waits for does not answer".into())
        };
        tokio::time::timeout(ANSWER_TIMEOUT, self.conn.ping()).await.map_err(|_| late())?
    }
}

/// Takes a name, and says whether the connection that answers is the one that has it. Each question is a
/// statement of its own, as a proxy would carry it out.
pub(super) async fn takes_name(conn: &mut MySqlConnection, name: &str) -> sqlx_core::Result<bool> {
    let mut numbers = [None; 3];
    let questions = [
        // Our last one may not be quite gone.
        format!("SELECT GET_LOCK('{name}', 1)"),
        "SELECT CONNECTION_ID()".to_owned(),
        format!("SELECT IS_USED_LOCK('{name}')"),
    ];
    for (question, number) in questions.into_iter().zip(&mut numbers) {
        *number = ask_number(conn, question).await?;
    }
    let [taken, mine, holder] = numbers;
    if taken == Some(0) {
        // The server has not noticed yet that our last one has failed.
        return Err(sqlx_core::Error::Protocol("another connection of this client is still parked".into()));
    }
    Ok(taken == Some(1) && mine.is_some() && mine == holder)
}

pub(super) async fn ask_number(
    conn: &mut MySqlConnection,
    question: String,
) -> sqlx_core::Result<Option<i64>> {
    use sqlx_core::row::Row;
    let row = sqlx_core::raw_sql::raw_sql(AssertSqlSafe(question)).fetch_one(conn).await?;
    row.try_get_unchecked(0)
}
