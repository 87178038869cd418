//! The parked connection of a client that waits, and what it hears; see `push.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use lockwell_core::FencingToken;
use lockwell_core::backend::Waiters;
use sqlx_core::Either;
use sqlx_core::row::Row;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::call::{Statement, StatementCall, numbers};
use super::hold::{Holder, takes_name};
use super::kill::{Push, name};
use super::session::{self, ANSWER_TIMEOUT};
use crate::dialect::answers::mysql::number;
use crate::sql::login::Login;
use crate::words::Notification;

/// How long the server sleeps when kills arrive.
const LONG: Duration = Duration::from_secs(1);
/// How long it sleeps when they may not arrive, or when a waiter that was told may not have asked yet.
const SHORT: Duration = Duration::from_millis(20);
/// For how long it sends no message once all its waiters have been granted their locks, unless another one
/// comes. They may be about to release them, and the server is to have no more to do at that moment.
const REST: Duration = Duration::from_millis(20);
/// How much later than it should a statement of a message may be answered. A kill that comes just between two
/// of them makes the server leave the rest out without a word.
const MAX_LATENESS: Duration = Duration::from_millis(500);

/// Opens a connection that has the name of this client, instead of the one that had it. `false`: the name is
/// not found at it.
async fn named(
    connect: &Login<MySqlConnectOptions>,
    client: Uuid,
    instead_of: &mut MySqlConnection,
) -> sqlx_core::Result<bool> {
    // The old one is closed, and with that it gives the name back.
    *instead_of = session::open(connect).await?;
    take_name(instead_of, client).await
}

pub(super) async fn take_name(conn: &mut MySqlConnection, client: Uuid) -> sqlx_core::Result<bool> {
    // One that we have lost without a word is to give the name back soon.
    sqlx_core::raw_sql::raw_sql("SET SESSION wait_timeout = 5").execute(&mut *conn).await?;
    takes_name(conn, &name(client)).await
}

/// Whether kills can be relied upon.
#[derive(Debug, Default)]
struct HeardKills {
    /// How many have to be heard until then.
    needed: u32,
    missed: u32,
}

impl HeardKills {
    fn heard(&mut self) {
        self.needed = self.needed.saturating_sub(1);
    }

    fn missed(&mut self) {
        self.missed = (self.missed + 1).min(6);
        self.needed = 1 << self.missed;
    }
}

/// What came of one message.
#[derive(Debug)]
enum ParkOutcome {
    /// A kill has ended the statement. Whoever sent it has committed before, so the next message sees it.
    Killed,
    Answered(ParkReply),
    /// Another connection has the name.
    Foreign,
    /// The rest of the message was left out.
    Silent,
}

#[derive(Debug)]
struct ParkReply {
    /// For how long it was parked. `None`: it was not, since there was something to tell.
    parked: Option<Duration>,
    /// The name that it waited for had no holder.
    unblocked: bool,
    turns: Vec<i64>,
    grants: Vec<Notification>,
}

/// What the waiters of this process have been told.
#[derive(Debug, Default)]
struct Notified {
    /// Waiters that had no time to ask yet. They are not told again before, unless somebody wakes us.
    turns: Vec<i64>,
    /// Waiters whose grants the last answer has named, and the tokens of these. One that it has not named is
    /// gone, and one with another token is another one.
    grants: Vec<(i64, Option<FencingToken>)>,
}

fn grant_of(notification: &Notification) -> (i64, Option<FencingToken>) {
    (notification.ticket, notification.granted.map(|granted| granted.token()))
}

impl Notified {
    fn list(numbers: &[i64]) -> String {
        numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
    }

    /// The waiters whose grants are known, and the tokens, which are far higher than the numbers of waiters.
    fn known_grants(&self) -> String {
        let numbers = self.grants.iter().flat_map(|(ticket, token)| {
            [Some(*ticket), token.map(|token| token.get().cast_signed())].into_iter().flatten()
        });
        Self::list(&numbers.collect::<Vec<_>>())
    }

    /// Notes an answer, and leaves only those grants in it that are new.
    fn note(&mut self, answer: &mut ParkReply) {
        self.turns.extend(&answer.turns);
        let named = answer.grants.iter().map(grant_of).collect();
        let known = std::mem::replace(&mut self.grants, named);
        answer.grants.retain(|grant| !known.contains(&grant_of(grant)));
    }
}

/// A connection that is to be parked.
pub(super) struct ParkedSession {
    pub(super) connect: Login<MySqlConnectOptions>,
    pub(super) conn: MySqlConnection,
    pub(super) client: Uuid,
    pub(super) waiters: Arc<Waiters>,
    /// It finds out whose turn it is, and what was granted.
    pub(super) whole: Statement,
    /// It finds out what was granted, and whether it must be asked whose turn it is.
    pub(super) for_grants: Statement,
    /// The connection that holds that name is being opened.
    pub(super) opening: Option<JoinHandle<sqlx_core::Result<Option<Holder>>>>,
}

impl ParkedSession {
    /// Stays parked until a connection fails or it is over, and tells the waiters what it hears. Returns why it
    /// has ended.
    pub(super) async fn stay(mut self, push: &Push, is_over: &AtomicBool) -> sqlx_core::Error {
        let mut holder = None;
        if let Err(error) = self.listen(push, is_over, &mut holder).await {
            return error;
        }
        let opened = match (holder, self.opening) {
            (None, Some(opening)) => opening.await.ok().and_then(Result::ok).flatten(),
            (holder, _) => holder,
        };
        if let Some(holder) = opened {
            holder.close().await;
        }
        session::close(self.conn).await;
        protocol("nobody waits any more")
    }

    async fn listen(
        &mut self,
        push: &Push,
        is_over: &AtomicBool,
        holder: &mut Option<Holder>,
    ) -> sqlx_core::Result<()> {
        let (mut trust, mut notified, mut slept_long) = (HeardKills::default(), Notified::default(), false);
        let mut has_blocked = false;
        let mut is_whole = true;
        while !is_over.load(Ordering::Relaxed) {
            if let Some(holder) = holder {
                holder.keep().await?;
            }
            // Until the second connection is open, the message only looks: the server takes no mutex for a
            // sleep of no time.
            let sleep = match self.opening {
                Some(_) => Duration::ZERO,
                None if notified.turns.is_empty() && trust.needed == 0 => LONG,
                None => SHORT,
            };
            let statement = if is_whole { &self.whole } else { &self.for_grants };
            let message = self.message(statement, &notified, sleep, holder.as_ref()).written();
            let mut answer = match self.send(message, sleep).await? {
                ParkOutcome::Answered(answer) => answer,
                ParkOutcome::Killed => {
                    trust.heard();
                    notified.turns.clear();
                    slept_long = false;
                    continue;
                }
                ParkOutcome::Silent => {
                    tracing::debug!("the parked connection has left a statement out and is replaced");
                    self.replace().await?;
                    continue;
                }
                ParkOutcome::Foreign => {
                    push.refuse("another connection has the name of the parked one");
                    return Err(protocol("the parked connection was exchanged"));
                }
            };
            let slept_through = answer.parked.is_some_and(|parked| parked >= sleep.mul_f64(0.9));
            notified.note(&mut answer);
            let found = !(answer.turns.is_empty() && answer.grants.is_empty());
            if !is_whole && !found && answer.parked.is_none() {
                is_whole = true;
                continue;
            }
            // One that was killed and has found no grant may have been told of a turn.
            is_whole = !is_whole && !found && !slept_through;
            if answer.unblocked {
                if has_blocked {
                    return Err(protocol("the connection that a parked one waits for was lost"));
                }
                // The two connections may lead to different servers. It sleeps for good then. The name goes
                // with the connection.
                *holder = None;
                self.replace().await?;
            } else {
                has_blocked |= holder.is_some() && answer.parked.is_some();
            }
            if answer.parked.is_some() {
                notified.turns.clone_from(&answer.turns);
                if !slept_through && !answer.unblocked {
                    trust.heard();
                }
            }
            if found && (slept_through && sleep == LONG || answer.parked.is_none() && slept_long) {
                tracing::debug!("a turn was not announced");
                trust.missed();
            }
            slept_long = slept_through && sleep == LONG && !found;
            let granted: Vec<i64> = answer.grants.iter().map(|grant| grant.ticket).collect();
            for told in answer.turns.into_iter().map(Notification::to_recheck).chain(answer.grants) {
                self.waiters.deliver(told);
            }
            if let Some(opening) = &mut self.opening
                && let Ok(opened) = tokio::time::timeout(SHORT, opening).await
            {
                self.opening = None;
                *holder = opened.ok().and_then(Result::ok).flatten();
            }
            if !granted.is_empty() && notified.turns.is_empty() {
                rest(&self.waiters, &granted).await;
            }
        }
        Ok(())
    }

    fn message<'a>(
        &self,
        statement: &'a Statement,
        notified: &Notified,
        sleep: Duration,
        holder: Option<&Holder>,
    ) -> StatementCall<'a> {
        statement
            .call()
            .bind(&*name(self.client))
            .bind(self.client)
            .bind(&*Notified::list(&notified.turns))
            .bind(&*notified.known_grants())
            .bind(i64::try_from(sleep.as_millis()).unwrap_or(i64::MAX))
            .bind(holder.map_or("lockwell_none", Holder::name))
            .bind(i64::from(holder.is_some()))
    }

    /// Sends a message, and waits for what comes of it.
    async fn send(&mut self, message: String, sleep: Duration) -> sqlx_core::Result<ParkOutcome> {
        let mut answers = sqlx_core::raw_sql::raw_sql(AssertSqlSafe(message)).fetch_many(&mut self.conn);
        // The first answer comes after the way there and back. Then each follows the one before it.
        let mut limits = [sleep + ANSWER_TIMEOUT, sleep + MAX_LATENESS].into_iter();
        let (mut rows, mut has_answered) = (None, false);
        loop {
            let limit = limits.next().unwrap_or(MAX_LATENESS);
            match tokio::time::timeout(limit, answers.next()).await {
                Err(_) if has_answered => return Ok(ParkOutcome::Silent),
                Err(_) => return Err(protocol("the parked connection does not answer")),
                Ok(Some(Ok(Either::Right(row)))) => rows = Some(row),
                Ok(Some(Ok(Either::Left(_)))) => has_answered = true,
                Ok(Some(Err(sqlx_core::Error::Database(error)))) if number(&*error) == 1317 => {
                    return Ok(ParkOutcome::Killed);
                }
                Ok(Some(Err(error))) => return Err(error),
                Ok(None) => return answer(&rows.ok_or(sqlx_core::Error::RowNotFound)?),
            }
        }
    }

    /// Parks another connection instead.
    async fn replace(&mut self) -> sqlx_core::Result<()> {
        let parked =
            tokio::time::timeout(ANSWER_TIMEOUT, named(&self.connect, self.client, &mut self.conn)).await;
        match parked {
            Ok(Ok(true)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Ok(Ok(false)) | Err(_) => Err(protocol("it cannot be parked again")),
        }
    }
}

/// Waits until there is another waiter than these, which have been granted their locks. What is released
/// meanwhile, the next message sees. One of these that cannot use its grant asks by itself.
async fn rest(waiters: &Waiters, granted: &[i64]) {
    // After that time they keep their locks for longer, or none of them could use its grant.
    drop(tokio::time::timeout(REST, waiters.another(granted)).await);
}

fn protocol(text: &str) -> sqlx_core::Error {
    sqlx_core::Error::Protocol(text.into())
}

fn answer(row: &MySqlRow) -> sqlx_core::Result<ParkOutcome> {
    let number = |at: usize| row.try_get_unchecked::<Option<i64>, _>(at).map(Option::unwrap_or_default);
    let text = |at: usize| row.try_get_unchecked::<Option<String>, _>(at).map(Option::unwrap_or_default);
    if number(0)? == 0 {
        return Ok(ParkOutcome::Foreign);
    }
    let parked = row.try_get_unchecked::<Option<i64>, _>(1)?;
    Ok(ParkOutcome::Answered(ParkReply {
        parked: parked.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        unblocked: number(2)? != 0,
        turns: numbers(Some(&text(3)?)),
        grants: text(4)?.split(',').filter_map(Notification::parse).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_told_once_and_listed_for_as_long_as_it_is_there() {
        let mut notified = Notified::default();
        let mut note = |grants: &[&str], turns: Vec<i64>| {
            let grants = grants.iter().filter_map(|text| Notification::parse(text)).collect();
            let mut answer = ParkReply { parked: Some(LONG), unblocked: false, turns, grants };
            notified.note(&mut answer);
            let new: Vec<i64> = answer.grants.iter().map(|grant| grant.ticket).collect();
            (Notified::list(&notified.turns), notified.known_grants(), new)
        };
        assert_eq!(note(&["7:9:2000:100:1", "8"], vec![3, 5]), ("3,5".into(), "7,9,8".into(), vec![7, 8]));
        // Another grant for the same waiter, whose first one has lapsed.
        let again = note(&["7:11:9000:100:4", "8"], vec![]);
        assert_eq!(again, ("3,5".into(), "7,11,8".into(), vec![7]));
        assert_eq!(note(&["8", "9"], vec![]), ("3,5".into(), "8,9".into(), vec![9]));
        assert_eq!(note(&[], vec![]), ("3,5".into(), String::new(), vec![]));
    }

    #[test]
    fn the_more_turns_are_missed_the_more_kills_must_be_heard() {
        let mut trust = HeardKills::default();
        for needed in [2, 4, 8, 16, 32, 64, 64] {
            trust.missed();
            assert_eq!(trust.needed, needed);
        }
        (0..64).for_each(|_| trust.heard());
        assert_eq!(trust.needed, 0);
    }
}
