//! Claims with places: they take their locks, or enter the queue.

use lockwell_core::Claim;
use lockwell_core::backend::PLACE_TTL;
use uuid::Uuid;

use super::driver::{Conn, Postgres, labels, names, tokens};
use super::grace::{Closed, LOOKS};
use super::plan::{Asked, Step, plan};
use crate::dialect::hints::Hint;
use crate::dialect::queued::{Entered, HandOverQueue, SIGNED_LATELY, TRIES, claim_each};
use crate::words::{
    Hold, QueueRow, QueuedClaim, TakeRequest, TryAcquire, WaiterPoll, block, micros, span, token,
};

impl Postgres {
    pub(super) async fn take_each(
        &self,
        conn: &mut Conn,
        requests: &[TakeRequest],
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        if let [TakeRequest { claim, .. }] = requests
            && let Some(answer) = self.take_one(conn, claim).await?
        {
            return Ok(vec![answer]);
        }
        let mut answers = Vec::with_capacity(requests.len());
        for (TakeRequest { claim, .. }, taken) in requests.iter().zip(self.take_many(conn, requests).await?) {
            answers.push(self.answer(conn, claim, taken).await?);
        }
        Ok(answers)
    }

    /// Takes a lock by the shortest statements. `None`: they do not decide.
    async fn take_one(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Option<TryAcquire>> {
        let granted = |number| Some(TryAcquire::Granted(token(number)));
        let was_held = self.hints.has(Hint::Held, claim.name());
        // A claim that asks again and again for a lock that is held is refused by one statement.
        if !was_held && let Some(number) = self.take(conn, claim).await? {
            return Ok(granted(number));
        }
        let stand: Option<Stand> = self.statement(&self.sql.stand).of(claim).row(&mut *conn).await?;
        match stand {
            None => Ok(self.taking_one(&self.sql.take_new, claim).value(conn).await?.and_then(granted)),
            Some((in_use @ Some(_), left, _)) => {
                self.hints.note(Hint::Held, claim.name());
                Ok(Some(TryAcquire::refused(in_use, left)))
            }
            Some((None, _, true)) => Ok(Some(self.claim_one(conn, claim, None).await?.0)),
            Some((None, _, false)) if was_held => {
                self.hints.forget(Hint::Held, claim.name());
                Ok(self.take(conn, claim).await?.and_then(granted))
            }
            // It is the claim's own, or was released a moment ago; or the mark is not open, which `take_many` says.
            Some((None, _, false)) => Ok(None),
        }
    }

    async fn take(&self, conn: &mut Conn, claim: &Claim) -> sqlx_core::Result<Option<i64>> {
        self.taking_one(&self.sql.take, claim).value(conn).await
    }

    async fn take_many(&self, conn: &mut Conn, requests: &[TakeRequest]) -> sqlx_core::Result<Vec<Taken>> {
        let claims = requests.iter().map(|request| &request.claim);
        self.taking(&self.sql.take_many, claims).rows(conn).await
    }

    /// The answer to one claim. If the lock is free and somebody may be waiting for it, a second statement
    /// decides.
    async fn answer(&self, conn: &mut Conn, claim: &Claim, taken: Taken) -> sqlx_core::Result<TryAcquire> {
        Ok(match taken {
            (Some(number), ..) => TryAcquire::Granted(token(number)),
            (_, _, _, true) => self.claim_one(conn, claim, None).await?.0,
            (_, in_use, left, _) => TryAcquire::refused(in_use, left),
        })
    }

    async fn claim_all(
        &self,
        conn: &mut Conn,
        entries: &[QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<(Vec<TryAcquire>, Option<u64>)> {
        let [entry @ QueuedClaim { claim, row }] = entries else {
            return claim_each(self, conn, entries, sign).await;
        };
        if Hold::of(claim) == Hold::Together {
            return claim_each(self, conn, entries, sign).await;
        }
        let steps = plan(Asked::Claim { is_stored: row.is_stored }, self.hints.of(claim.name()));
        if steps.contains(&Step::EnterMarked)
            && let Some(refused) = self.enter_marked(&mut *conn, entry).await?
        {
            return Ok((vec![refused], None));
        }
        let (took, clock) = self.claim_one(conn, claim, Some((*row, sign))).await?;
        Ok((vec![took], clock))
    }

    /// Takes a place without locking the lock's row, where that is marked already. It is no heartbeat.
    /// `None`: perhaps no release sees the place, if there is one, so the claim must ask; it keeps the place
    /// then.
    pub(super) async fn enter_marked(
        &self,
        conn: &mut Conn,
        QueuedClaim { claim, row }: &QueuedClaim,
    ) -> sqlx_core::Result<Option<TryAcquire>> {
        // A grant is valid from the heartbeat that it names. Of a short lease too little would be left.
        let lately = row.lease.map_or(SIGNED_LATELY, |lease| SIGNED_LATELY.min(lease / 6));
        let alive_for = micros(PLACE_TTL.saturating_sub(lately));
        let entered = self
            .statement(&self.sql.enter_marked)
            .of(claim)
            .bind(conn.client())
            .bind(row.number)
            .bind(claim.label())
            .bind(block(claim))
            .bind(row.lease.map(micros))
            .bind(alive_for)
            .execute(&mut *conn)
            .await?;
        let mut left: Option<i64> = None;
        if entered.rows_affected() > 0 {
            // Another message, so that the place is committed before this looks.
            left = self
                .statement(&self.sql.look)
                .of(claim)
                .bind(conn.client())
                .bind(alive_for)
                .value(conn)
                .await?;
        }
        match left {
            Some(_) => self.hints.note(Hint::Marked, claim.name()),
            None => self.hints.forget(Hint::Marked, claim.name()),
        }
        Ok(left.map(|left| TryAcquire::refused(Some(0), Some(left))))
    }

    /// Takes one exclusive lock, for a claim with or without a place. Returns the server's clock if the
    /// request was a sign of life.
    pub(super) async fn claim_one(
        &self,
        conn: &mut Conn,
        claim: &Claim,
        place: Option<(QueueRow, i64)>,
    ) -> sqlx_core::Result<(TryAcquire, Option<u64>)> {
        let (client, mut took, mut clock) = (conn.client(), TryAcquire::REFUSED, None);
        for _ in 0..TRIES {
            let row: Claimed = self
                .taking_one(&self.sql.claim, claim)
                .bind(place.map(|_| client))
                .bind(place.map(|(row, _)| row.number))
                .bind(micros(PLACE_TTL))
                .bind(place.map(|(_, sign)| sign))
                .bind(place.and_then(|(row, _)| row.lease).map(micros))
                .row(&mut *conn)
                .await?
                .ok_or(sqlx_core::Error::RowNotFound)?;
            let (taken, in_use, left, is_new, again, now, _) = row;
            if let Some(number) = taken {
                return Ok((TryAcquire::Granted(token(number)), clock));
            }
            if is_new {
                self.make(conn, vec![claim.name().as_str()]).await?;
                continue;
            }
            took = TryAcquire::refused(in_use, left);
            clock = place.map(|_| now.cast_unsigned());
            if !again {
                break;
            }
        }
        if place.is_some() {
            self.hints.note(Hint::Marked, claim.name());
        }
        Ok((took, clock))
    }

    /// Makes rows for locks that were never used.
    pub(super) async fn make(&self, conn: &mut Conn, names: Vec<&str>) -> sqlx_core::Result<()> {
        self.statement(&self.sql.make).bind(names).execute(conn).await.map(drop)
    }
}

impl HandOverQueue for Postgres {
    async fn enter(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<Vec<Entered>> {
        let mut rows = self.enter_rows(conn, entries, sign).await?;
        if rows.iter().any(|(.., is_new, _, _)| *is_new) {
            let new = entries.iter().zip(&rows).filter(|(_, (.., is_new, _, _))| *is_new);
            self.make(conn, names(new.map(|(entry, _)| &entry.claim))).await?;
            rows = self.enter_rows(conn, entries, sign).await?;
        }
        let entered = |(in_use, left, _, asks, now): EnteredRow| Entered {
            in_use,
            left,
            asks,
            blocked: false,
            clock: Some(now.cast_unsigned()),
        };
        Ok(rows.into_iter().map(entered).collect())
    }

    async fn take_with_places(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<Vec<TryAcquire>> {
        if let [QueuedClaim { claim, row }] = entries {
            return Ok(vec![self.claim_one(conn, claim, Some((*row, sign))).await?.0]);
        }
        let claims = entries.iter().map(|entry| &entry.claim);
        let rows: Vec<TakenRow> = self.taking(&self.sql.take_placed, claims).rows(conn).await?;
        let answer = |(taken, in_use, left): TakenRow| match taken {
            Some(number) => TryAcquire::Granted(token(number)),
            None => TryAcquire::refused(in_use, left),
        };
        Ok(rows.into_iter().map(answer).collect())
    }

    async fn claim(
        &self,
        conn: &mut Conn,
        entries: &[QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<(Vec<TryAcquire>, Option<u64>)> {
        let mut tries = 0..LOOKS;
        loop {
            let claimed = self.claim_all(conn, entries, sign).await;
            match self.closed(conn, &claimed, entries.iter().map(|entry| &entry.claim)).await? {
                Some(Closed::For(left)) => return Ok((vec![TryAcquire::Closed(left); entries.len()], None)),
                Some(Closed::NotNow) if tries.next().is_some() => (),
                _ => return claimed,
            }
        }
    }

    async fn poll_waiters(
        &self,
        conn: &mut Conn,
        places: &[(i64, Uuid)],
        sign: i64,
    ) -> sqlx_core::Result<WaiterPoll> {
        let (clock, missing, turns, left): (i64, Vec<i64>, Vec<i64>, Option<i64>) = self
            .statement(&self.sql.poll_waiters)
            .bind(places.iter().map(|(number, _)| *number).collect::<Vec<_>>())
            .bind(places.iter().map(|(_, owner)| *owner).collect::<Vec<_>>())
            .bind(conn.client())
            .bind(micros(PLACE_TTL))
            .bind(sign)
            .row(conn)
            .await?
            .ok_or(sqlx_core::Error::RowNotFound)?;
        Ok(WaiterPoll { clock: clock.cast_unsigned(), missing, turns, left: left.map(span) })
    }
}

impl Postgres {
    async fn enter_rows(
        &self,
        conn: &mut Conn,
        entries: &[&QueuedClaim],
        sign: i64,
    ) -> sqlx_core::Result<Vec<EnteredRow>> {
        let claims = || entries.iter().map(|entry| &entry.claim);
        self.statement(&self.sql.enter)
            .of_each(claims())
            .bind(labels(claims()))
            .bind(tokens(claims()))
            .bind(claims().map(|claim| claim.mode().code()).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.row.number).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.row.lease.map(micros)).collect::<Vec<_>>())
            .bind(conn.client())
            .bind(micros(PLACE_TTL))
            .bind(sign)
            .rows(conn)
            .await
    }
}

/// The token; the mode of the lock, and the time left; whether it has no row; whether to ask again; the
/// server's clock; and whether the answer is durable.
type Claimed = (Option<i64>, Option<i64>, Option<i64>, bool, bool, i64, bool);

/// The same for a claim that only takes a place.
type EnteredRow = (Option<i64>, Option<i64>, bool, bool, i64);

/// The token; the mode of the lock, and the time left.
type TakenRow = (Option<i64>, Option<i64>, Option<i64>);

/// The mode of the lock, the time left, and whether only waiters are ahead.
type Stand = (Option<i64>, Option<i64>, bool);

/// The token; for a refused claim the mode of the lock, the time left, and whether only waiters are ahead.
type Taken = (Option<i64>, Option<i64>, Option<i64>, bool);
