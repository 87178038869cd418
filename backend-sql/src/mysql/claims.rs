//! Claims with places: they take their locks, or enter the queue.

use lockwell_core::Moment;
use lockwell_core::backend::PLACE_TTL;
use sqlx_core::from_row::FromRow;
use sqlx_core::row::Row;
use uuid::Uuid;

use super::batches::{LockState, granted, taking};
use super::call::{Statement, StatementCall, numbers, send_whole};
use super::driver::{Conn, MySql};
use super::plan::{Asked, Step, plan};
use super::rows::Rows;
use crate::dialect::hints::Hint;
use crate::dialect::queued::{Entered, HandOverQueue, SIGNED_LATELY, TRIES, claim_each};
use crate::words::{Hold, QueuedClaim, TryAcquire, WaiterPoll, block, micros, span};

/// How many statements `take_with_place` has, and which of them takes the lock.
const STATEMENTS: usize = 7;
const TAKES: usize = 2;

/// A statement about rows that is a heartbeat.
fn signing<'a>(statement: &'a Statement, rows: &Rows, conn: &Conn, sign: i64) -> StatementCall<'a> {
    statement.call().bind(rows.json()).bind(conn.client()).bind(micros(PLACE_TTL)).bind(sign)
}

impl MySql {
    /// How claims enter the queue. Of several locks the least is known.
    pub(super) fn entering(&self, conn: &Conn, entries: &[&QueuedClaim]) -> &'static [Step] {
        let signed = conn.signed.is_some_and(|signed| !signed.after(SIGNED_LATELY).has_passed());
        let is_one = matches!(entries, [one] if Hold::of(&one.claim) == Hold::Alone);
        let plan_of =
            |entry: &&QueuedClaim| plan(Asked::Enter { signed, is_one }, self.hints.of(entry.claim.name()));
        entries.iter().map(plan_of).min_by_key(|steps| steps.len()).unwrap_or_default()
    }

    /// Takes places. `sign`: the heartbeat that it is. Without one, no lock is marked as waited for.
    async fn enter_rows(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        sign: Option<i64>,
    ) -> sqlx_core::Result<Vec<LockState>> {
        let rows = Rows::of_entries(entries)?;
        let call = match sign {
            Some(sign) => signing(&self.sql.enter, &rows, conn, sign),
            None => self.sql.enter_marked.call().bind(rows.json()).bind(conn.client()),
        };
        let sent = Moment::now();
        let answers = send_whole(&mut conn.inner, call.written()).await?;
        if sign.is_some() {
            conn.signed = Some(sent);
        }
        let found: Vec<_> = answers.rows.iter().map(LockState::from_row).collect::<sqlx_core::Result<_>>()?;
        Ok(rows.in_order(found.into_iter()))
    }

    /// Takes a place for one claim that wants its lock alone, as most do. `None`: another does not hold it
    /// alone, or the lock is not marked as waited for.
    async fn enter_one(
        &self,
        conn: &mut Conn,
        QueuedClaim { claim, row }: &QueuedClaim,
    ) -> sqlx_core::Result<Option<Entered>> {
        let call = self.sql.enter_one.of(claim).bind(conn.client());
        let call = call.bind(row.number).bind(claim.label()).bind(block(claim)).bind(row.lease.map(micros));
        let answers = send_whole(&mut conn.inner, call.written()).await?;
        let Some(row) = answers.rows.first() else { return Ok(None) };
        self.hints.note(Hint::Marked, claim.name());
        let left = Some(row.try_get_unchecked(0)?);
        Ok(Some(Entered { in_use: Some(0), left, asks: false, blocked: false, clock: None }))
    }
}

impl HandOverQueue for MySql {
    /// It is repeated at once if a row is not marked, or could not be marked: usually it was locked for a
    /// moment.
    async fn enter(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<Vec<Entered>> {
        let mut tries = 0;
        let steps = self.entering(conn, entries);
        let mut signs = !steps.contains(&Step::EnterMarked);
        if let [one] = entries
            && steps.contains(&Step::EnterOne)
            && let Some(entered) = self.enter_one(conn, one).await?
        {
            return Ok(vec![entered]);
        }
        loop {
            let with = signs.then_some(sign);
            let state = self.enter_rows(conn, entries, with).await?;
            tries += usize::from(signs);
            for (entry, _) in entries.iter().zip(&state).filter(|(_, one)| one.waited) {
                self.hints.note(Hint::Marked, entry.claim.name());
            }
            let asks = |one: &LockState| one.has_row && (one.token.is_some() || one.is_free());
            let is_told = |one: &LockState| one.has_row && (one.waited || asks(one));
            if tries < TRIES && !state.iter().all(is_told) {
                for (entry, _) in entries.iter().zip(&state).filter(|(_, one)| !one.has_row) {
                    self.sql.make.call().bind(entry.claim.name()).execute(&mut conn.inner).await?;
                }
                signs = true;
                continue;
            }
            let entered = |one: &LockState| Entered {
                in_use: one.in_use,
                left: one.left,
                asks: asks(one),
                blocked: !is_told(one),
                clock: signs.then_some(one.clock.cast_unsigned()),
            };
            return Ok(state.iter().map(entered).collect());
        }
    }

    /// Each claim has a transaction of its own, so none waits for the row of another. All transactions are
    /// one message.
    async fn take_with_places(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        _: i64,
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        // What is still blocked at the end: a transaction has locked the row.
        let mut answers = vec![TryAcquire::Blocked; entries.len()];
        let mut open: Vec<usize> = (0..entries.len()).collect();
        for _ in 0..TRIES {
            let claim = |at: &usize| &entries[*at].claim;
            let packet = |at| taking(&self.sql.take_with_place, claim(at)).written();
            let message = open.iter().map(packet).collect::<Vec<_>>().join(";\n");
            let done = send_whole(&mut conn.inner, message).await?.done;
            for (&at, packet) in open.iter().zip(done.chunks(STATEMENTS)) {
                answers[at] = packet.get(TAKES).and_then(granted).unwrap_or(TryAcquire::Blocked);
            }
            open.retain(|&at| answers[at] == TryAcquire::Blocked);
            if open.is_empty() {
                break;
            }
            let rows = Rows::of_claims(open.iter().map(claim))?;
            for (&at, state) in open.iter().zip(self.lock_state(conn, &rows).await?) {
                // Its place may not be marked, if a release had locked the row meanwhile. Who holds the lock
                // now may not have seen the place, and does not look for it. Such a claim asks again soon.
                if state.token.is_none() && !state.is_free() && state.waited {
                    answers[at] = state.answer(&entries[at].claim);
                }
            }
            open.retain(|&at| answers[at] == TryAcquire::Blocked);
            if open.is_empty() {
                break;
            }
        }
        Ok(answers)
    }

    async fn claim(
        &self,
        conn: &mut Conn,
        entries: &[QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<(Vec<TryAcquire>, Option<u64>)> {
        claim_each(self, conn, entries, sign).await
    }

    async fn poll_waiters(
        &self,
        conn: &mut Conn,
        places: &[(i64, Uuid)],
        sign: i64,
    ) -> sqlx_core::Result<WaiterPoll> {
        let rows = Rows::of_places(places)?;
        let polling = signing(&self.sql.poll_waiters, &rows, conn, sign);
        let sent = Moment::now();
        let answers = send_whole(&mut conn.inner, polling.written()).await?;
        conn.signed = Some(sent);
        let row = answers.rows.first().ok_or(sqlx_core::Error::RowNotFound)?;
        let listed = |at: usize| -> sqlx_core::Result<Vec<i64>> {
            Ok(numbers(row.try_get_unchecked::<Option<String>, _>(at)?.as_deref()))
        };
        let left: Option<i64> = row.try_get_unchecked(3)?;
        Ok(WaiterPoll {
            clock: row.try_get_unchecked::<i64, _>(0)?.cast_unsigned(),
            missing: listed(1)?,
            turns: listed(2)?,
            left: left.map(span),
        })
    }
}
