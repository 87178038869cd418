//! A release grants the lock to its first waiter.

use lockwell_core::Claim;
use sqlx_core::row::Row;
use sqlx_mysql::{MySqlQueryResult, MySqlRow};
use uuid::Uuid;

use super::call::{Answers, Statement, StatementCall, send, undo};
use super::driver::{Conn, MySql};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::Dialect;
use crate::dialect::follow_up::{FollowUp, in_doubt};
use crate::dialect::hints::Hint;
use crate::dialect::queued::TRIES;
use crate::ids::AsUuid;
use crate::words::{Freed, JOINS, Notification};

/// How many statements `hand_over` has, and which of them changes the row of the first waiter.
const STATEMENTS: usize = 10;
const GRANTS: usize = 4;
/// Which statement of `pass_on` grants the lock.
const PASSES: usize = 1;

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
    /// The answers to all releases of a message, as far as they are carried out.
    fn read_all(answers: &Answers) -> impl Iterator<Item = sqlx_core::Result<Self>> {
        let statements = answers.done.chunks(STATEMENTS);
        answers.rows.iter().zip(statements).map(|(row, done)| Self::read(row, done))
    }

    fn read(row: &MySqlRow, done: &[MySqlQueryResult]) -> sqlx_core::Result<Self> {
        let flag = |at: usize| row.try_get_unchecked::<i64, _>(at).map(|flag| flag != 0);
        let mode: Option<i64> = row.try_get_unchecked(2)?;
        let client: Option<String> = row.try_get_unchecked(3)?;
        let client = client.and_then(|hex| Uuid::try_parse(&hex).ok());
        Ok(Self {
            released: flag(0)?,
            // sqlx counts the rows that were found, changed or not.
            again: flag(1)? && done.get(GRANTS).is_none_or(|one| one.rows_affected() == 0),
            first: mode.zip(client),
            text: row.try_get_unchecked(4)?,
        })
    }
}

fn handing<'a>(statement: &'a Statement, claim: &Claim, conn: &Conn) -> StatementCall<'a> {
    statement.of(claim).bind(conn.client())
}

impl MySql {
    /// Frees one lock, or grants it to its first waiter, and wakes that.
    pub(super) async fn release_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Freed> {
        let mut freed = Freed::default();
        for step in plan(Asked::Release, self.hints.of(claim.name())) {
            if *step == Step::Release {
                let short = self.sql.release.of(claim);
                // sqlx counts the rows that were found, changed or not.
                if short.execute(&mut conn.inner).await?.rows_affected() > 0 {
                    return Ok(Freed::new(true, Vec::new()));
                }
                continue;
            }
            // The first one of a connection asks before it releases, not after: then its message can wake the
            // waiter, which need not wait until another connection is open (with TLS, 50 ms on one machine).
            self.learn_to_kill(conn).await;
            if *step == Step::HandOver {
                self.hand_over(conn, claim, &mut freed).await?;
            } else if let Some(freed) = self.pass_on(conn, claim).await? {
                return Ok(freed);
            }
        }
        Ok(freed)
    }

    /// Grants the lock to its first waiter, with less work for the server than
    /// [`hand_over`](Self::hand_over). `None`: it was not granted, and is still held.
    async fn pass_on(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Option<Freed>> {
        if !self.may_kill(conn) {
            return Ok(None);
        }
        let answers = self.hand(conn, &self.sql.pass_on, claim, |sent| sent.done.len() > PASSES).await?;
        if answers.done[PASSES].rows_affected() == 0 {
            self.hints.forget(Hint::HandedOn, claim.name());
            return Ok(None);
        }
        self.hints.note(Hint::HandedOn, claim.name());
        let mut freed = Freed::new(true, Vec::new());
        if let Some(row) = answers.rows.first() {
            let client: Option<String> = row.try_get_unchecked(0)?;
            let client = client.and_then(|hex| Uuid::try_parse(&hex).ok());
            let text = row.try_get_unchecked(1)?;
            let handed =
                Handed { released: true, again: false, first: client.map(|client| (0, client)), text };
            self.settle(conn, claim, handed, true, &mut freed).await?;
        }
        Ok(Some(freed))
    }

    /// Sends the statements of a hand-over. What comes behind its commit is the kill, and there may be nobody
    /// to be woken.
    async fn hand(
        &self,
        conn: &mut Conn,
        statement: &Statement,
        claim: &Claim,
        is_committed: impl Fn(&Answers) -> bool + Send,
    ) -> sqlx_core::Result<Answers> {
        let message = handing(statement, claim, conn).written();
        match send(&mut conn.inner, message).await {
            (sent, outcome) if !is_committed(&sent) => {
                let error = outcome.err().unwrap_or(sqlx_core::Error::RowNotFound);
                Err(undo(&mut conn.inner, error).await)
            }
            (sent, Err(sqlx_core::Error::Database(error))) => {
                self.push.note_kill(&mut conn.may_kill, &*error);
                Ok(sent)
            }
            (sent, outcome) => outcome.map(|()| sent),
        }
    }

    /// Frees one lock, or grants it to its first waiter. Again, if that one has left meanwhile: the lock is
    /// free then, and another may take it, so what the first try has released stays released.
    async fn hand_over(&self, conn: &mut Conn, claim: &Claim, freed: &mut Freed) -> sqlx_core::Result<()> {
        let mut follow_up = FollowUp::default();
        for _ in 0..TRIES {
            let outcome = self.hand_over_once(conn, claim, freed).await;
            let outcome = if freed.released { follow_up.settle(self, outcome) } else { Some(outcome) };
            match outcome {
                Some(Ok(true)) | None => (),
                Some(Ok(false)) => break,
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether the first waiter has left meanwhile. There may be another.
    async fn hand_over_once(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        freed: &mut Freed,
    ) -> sqlx_core::Result<bool> {
        let wakes = self.may_kill(conn);
        let statement = if wakes { &self.sql.hand_over_and_wake } else { &self.sql.hand_over };
        let is_committed = |sent: &Answers| Handed::read_all(sent).next().is_some();
        let answers = self.hand(conn, statement, claim, is_committed).await?;
        let handed = Handed::read_all(&answers).next().ok_or(sqlx_core::Error::RowNotFound)??;
        let again = handed.again;
        freed.released |= handed.released;
        self.settle(conn, claim, handed, wakes, freed).await?;
        Ok(again)
    }

    /// Notifies the waiters whose turn it is.
    async fn settle(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        handed: Handed,
        is_woken: bool,
        freed: &mut Freed,
    ) -> sqlx_core::Result<()> {
        // With a token in it.
        if handed.text.as_deref().is_some_and(|text| text.contains(':')) {
            self.hints.note(Hint::HandedOn, claim.name());
        }
        match handed.first {
            Some((0, client)) if client == conn.client() => {
                freed.notification = handed.text.as_deref().and_then(Notification::parse);
            }
            Some((0, _)) if is_woken => (),
            Some((0, client)) => self.wake(conn, [client]),
            Some(_) => freed.next = self.due_waiters(conn, claim.name()).await?,
            None => (),
        }
        Ok(())
    }

    /// Frees many locks, or grants them to their first waiters. The rows of others are not locked: a claim
    /// that was refused is released as well, and must not wait for a transaction that has verified another's
    /// hold.
    pub(super) async fn release_many(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
    ) -> sqlx_core::Result<Vec<Freed>> {
        let mut answers = vec![Freed::default(); claims.len()];
        let rows = Rows::of_claims(claims.iter())?;
        let owned: Vec<(Uuid, i64)> = self.sql.owned.call().bind(rows.json()).rows(&mut conn.inner).await?;
        let waited = |claim: &Claim| {
            let found = owned.iter().find(|(owner, _)| *owner == claim.owner().as_uuid());
            found.map(|(_, waited)| *waited != 0)
        };
        let (mut quiet, mut rest) = (Vec::new(), Vec::new());
        for (at, claim) in claims.iter().enumerate() {
            match waited(claim) {
                Some(false) => quiet.push(at),
                Some(true) => rest.push(at),
                None => (),
            }
        }
        if !quiet.is_empty() {
            let rows = Rows::of_claims(quiet.iter().map(|&at| &claims[at]))?;
            let done = self.sql.release_many.call().bind(rows.json()).execute(&mut conn.inner).await?;
            if done.rows_affected() == quiet.len() as u64 {
                for at in std::mem::take(&mut quiet) {
                    answers[at].released = true;
                }
            }
        }
        // Of the others it is unknown which are free: one was lost, or somebody has begun to wait for one. To
        // free one again does no harm, but it may be another's by now.
        rest.extend(&quiet);
        for some in rest.chunks(JOINS) {
            let handed = self.hand_over_some(conn, claims, some, &mut answers).await;
            handed.map_err(|error| if quiet.is_empty() { error } else { in_doubt(error) })?;
        }
        for at in quiet {
            let freed = &mut answers[at];
            if freed.blocked {
                return Err(sqlx_core::Error::Protocol("a release of several locks was not finished".into()));
            }
            freed.in_doubt = !freed.released;
        }
        Ok(answers)
    }

    /// In one message, with a transaction for each lock. What was done before one fails is done.
    async fn hand_over_some(
        &self,
        conn: &mut Conn,
        claims: &[Claim],
        places: &[usize],
        answers: &mut [Freed],
    ) -> sqlx_core::Result<()> {
        let each = places.iter().map(|&at| handing(&self.sql.hand_over, &claims[at], conn).written());
        let message = each.collect::<Vec<_>>().join(";\n");
        let (sent, mut outcome) = send(&mut conn.inner, message).await;
        if let Err(error) = outcome {
            let error = undo(&mut conn.inner, error).await;
            if sent.rows.is_empty() && answers.iter().all(|freed| !freed.released) {
                return Err(error);
            }
            // What is done must not be repeated: it would be called lost. The rest is tried again, each by
            // itself.
            outcome = FollowUp::without_another_try(self, error);
        }
        let mut all = Handed::read_all(&sent);
        for &at in places {
            let Some(handed) = all.next() else {
                answers[at].blocked = true;
                continue;
            };
            let handed = handed?;
            let again = handed.again;
            answers[at].released = handed.released;
            self.settle(conn, &claims[at], handed, false, &mut answers[at]).await?;
            if again {
                self.hand_over(conn, &claims[at], &mut answers[at]).await?;
            }
        }
        outcome
    }
}
