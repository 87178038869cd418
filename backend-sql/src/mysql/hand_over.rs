//! A release grants the lock to its first waiter.

use lockcore::Claim;
use lockcore::backend::Waiters;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use super::call::{Call, Statement, send, undo};
use super::rows::Rows;
use super::{Conn, MySql};
use crate::database::{Database, ErrorClass};
use crate::dialect::{Freed, Notification};
use crate::groups::Groups;
use crate::ids::AsUuid;
use crate::queued::TRIES;

/// The answer to a release.
struct Handed {
    /// The lock was the claim's.
    released: bool,
    /// The first waiter left at that moment. There may be another.
    again: bool,
    /// The mode that the first waiter wants, and its client.
    first: Option<(i64, Uuid)>,
    /// Its notification.
    text: Option<String>,
}

impl Handed {
    fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        let flag = |at: usize| row.try_get_unchecked::<i64, _>(at).map(|flag| flag != 0);
        let mode: Option<i64> = row.try_get_unchecked(2)?;
        let client: Option<String> = row.try_get_unchecked(3)?;
        let client = client.and_then(|hex| Uuid::try_parse(&hex).ok());
        Ok(Self {
            released: flag(0)?,
            again: flag(1)?,
            first: mode.zip(client),
            text: row.try_get_unchecked(4)?,
        })
    }
}

fn handing<'a>(statement: &'a Statement, claim: &Claim, waiters: &Waiters) -> Call<'a> {
    statement.call().bind(claim.name()).bind(claim.owner().as_uuid()).bind(waiters.client().as_uuid())
}

impl MySql {
    /// Frees a lock that nobody may be waiting for. `false`: it is not held, or somebody may be waiting.
    async fn release_short(&self, conn: &mut Conn, claim: &Claim) -> sqlx::Result<bool> {
        let short = self.sql.release.call().bind(claim.name()).bind(claim.owner().as_uuid());
        // sqlx counts the rows that were found, changed or not.
        Ok(short.execute(&mut conn.inner).await?.rows_affected() > 0)
    }

    /// Frees one lock, or grants it to its first waiter, and wakes that.
    pub(super) async fn release_one(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        waiters: &Waiters,
    ) -> sqlx::Result<Freed> {
        if !self.hot.is_hot(claim.name()) && self.release_short(conn, claim).await? {
            return Ok(Freed::new(true, Vec::new()));
        }
        // The first one of a connection asks before it releases, not after: then its message can wake the waiter, which need
        // not wait until another connection is open (with TLS, 50 ms on one machine).
        self.learn_to_kill(conn).await;
        let mut freed = Freed::default();
        for _ in 0..TRIES {
            let wakes = self.may_kill(conn);
            let statement = if wakes { &self.sql.hand_over_and_wake } else { &self.sql.hand_over };
            let (answers, outcome) =
                send(&mut conn.inner, handing(statement, claim, waiters).written()).await;
            let Some(row) = answers.rows.first() else {
                let error = outcome.err().unwrap_or(sqlx::Error::RowNotFound);
                return Err(undo(&mut conn.inner, error).await);
            };
            // It is committed. What comes behind that is the kill, and there may be nobody to be woken.
            match outcome {
                Err(sqlx::Error::Database(error)) => self.push.note_kill(&mut conn.may_kill, &*error),
                outcome => outcome?,
            }
            let handed = Handed::read(row)?;
            let again = handed.again;
            freed.released |= handed.released;
            self.settle(conn, claim, handed, waiters, wakes, &mut freed).await?;
            if !again {
                break;
            }
        }
        Ok(freed)
    }

    /// Notifies the waiters whose turn it is.
    async fn settle(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        handed: Handed,
        waiters: &Waiters,
        is_woken: bool,
        freed: &mut Freed,
    ) -> sqlx::Result<()> {
        match handed.first {
            Some((0, client)) if client == waiters.client().as_uuid() => {
                freed.notification = handed.text.as_deref().and_then(Notification::parse);
            }
            Some((0, _)) if is_woken => (),
            Some((0, client)) => self.wake(conn, [client]),
            Some(_) => freed.next = self.due_waiters(conn, claim.name(), waiters).await?,
            None => (),
        }
        Ok(())
    }

    /// The same for many. The rows of others are not touched: a claim that was refused is released as well, and must not wait for
    /// a transaction that has verified another's hold.
    pub(super) async fn release_many(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        waiters: &Waiters,
    ) -> sqlx::Result<Vec<Freed>> {
        let mut answers = vec![Freed::default(); claims.len()];
        let rows = Rows::of_claims(claims.iter())?;
        let owned: Vec<(Uuid, i64)> = self.sql.owned.call().bind(rows.json()).rows(&mut conn.inner).await?;
        let waited = |claim: &Claim| {
            let found = owned.iter().find(|(owner, _)| *owner == claim.owner().as_uuid());
            found.map(|(_, waited)| *waited != 0)
        };
        let (mut quiet, mut awaited) = (Vec::new(), Vec::new());
        for (at, claim) in claims.iter().enumerate() {
            match waited(claim) {
                Some(false) => quiet.push(at),
                Some(true) => awaited.push(at),
                None => (),
            }
        }
        if !quiet.is_empty() {
            let some = Rows::of_claims(quiet.iter().map(|&at| &claims[at]))?;
            let done = self.sql.release_many.call().bind(some.json()).execute(&mut conn.inner).await?;
            if done.rows_affected() == quiet.len() as u64 {
                for &at in &quiet {
                    answers[at].released = true;
                }
            } else {
                // One was lost, or somebody has begun to wait for one, since we looked. To free one again does no harm.
                awaited.append(&mut quiet);
            }
        }
        self.hand_over_each(conn, claims, &awaited, waiters, &mut answers).await?;
        Ok(answers)
    }

    /// In one message, with a transaction for each lock. What was done before one fails is done.
    async fn hand_over_each(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        places: &[usize],
        waiters: &Waiters,
        answers: &mut [Freed],
    ) -> sqlx::Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let each = places.iter().map(|&at| handing(&self.sql.hand_over, &claims[at], waiters).written());
        let (sent, outcome) = send(&mut conn.inner, each.collect::<Vec<_>>().join(";\n")).await;
        if let Err(error) = outcome {
            let error = undo(&mut conn.inner, error).await;
            match &error {
                // The rest is tried again, each by itself.
                sqlx::Error::Database(why)
                    if !sent.rows.is_empty()
                        && matches!(self.class_of(&**why), ErrorClass::Again | ErrorClass::Blocked) => {}
                _ => return Err(error),
            }
        }
        let mut rows = sent.rows.iter();
        for &at in places {
            let Some(row) = rows.next() else {
                answers[at].blocked = true;
                continue;
            };
            let handed = Handed::read(row)?;
            if handed.again {
                answers[at] = self.release_one(conn, &claims[at], waiters).await?;
            } else {
                answers[at].released = handed.released;
                self.settle(conn, &claims[at], handed, waiters, false, &mut answers[at]).await?;
            }
        }
        Ok(())
    }
}
