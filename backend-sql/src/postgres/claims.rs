//! Claims with places: they take their locks, or stand in the queue.

use lockcore::backend::PLACE_TTL;
use lockcore::{Claim, Mode};
use sqlx::postgres::PgConnection;

use super::{Postgres, labels, names, owners, tokens};
use crate::dialect::{Ask, Entry, Hold, NO_TICKET, Sign, Took, block, micros, token};
use crate::groups::Groups;
use crate::places::Seat;

/// How often one asks that found the lock free or its own in the meantime. Then somebody stands before it.
const TRIES: usize = 3;

/// The token; how the lock is in use, and how long; whether it has no row; whether to ask again; the server's clock; and
/// whether the answer is durable.
type Claimed = (Option<i64>, Option<i64>, Option<i64>, bool, bool, i64, bool);

/// The same of one that only takes a place.
type Entered = (Option<i64>, Option<i64>, bool, bool, i64);

impl Postgres {
    /// One claim that wants its lock alone, with a place or without. Answers with the server's clock where it was a sign of
    /// life.
    pub(super) async fn claim_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        place: Option<(Seat, Sign)>,
    ) -> sqlx::Result<(Took, Option<u64>)> {
        let (mut took, mut clock) = (Took::Busy(None), None);
        for _ in 0..TRIES {
            let row: Claimed = self
                .statement(&self.sql.claim)
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(block(claim))
                .bind(place.map(|(_, sign)| sign.client))
                .bind(place.map(|(seat, _)| seat.number))
                .bind(micros(PLACE_TTL))
                .bind(place.map(|(_, sign)| sign.number.cast_signed()))
                .bind(place.and_then(|(seat, _)| seat.lease).map(micros))
                .row(&mut *conn)
                .await?
                .ok_or(sqlx::Error::RowNotFound)?;
            let (taken, in_use, left, is_new, again, now, _) = row;
            if let Some(number) = taken {
                return Ok((Took::Granted(token(number)), clock));
            }
            if is_new {
                self.make(conn, vec![claim.name().as_str()]).await?;
                continue;
            }
            took = Took::refused(claim, in_use, left);
            clock = place.map(|_| now.cast_unsigned());
            if !again {
                break;
            }
        }
        Ok((took, clock))
    }

    /// Claims in any mode. Of several who want one lock alone, the first asks for it.
    pub(super) async fn claim_many(
        &self,
        conn: &mut PgConnection,
        entries: &[Entry],
        sign: Sign,
    ) -> sqlx::Result<(Vec<Took>, Option<u64>)> {
        let mut answers = vec![Took::Busy(None); entries.len()];
        // Who has a place already, and wants the lock together with others, need not enter.
        let enters = |entry: &&Entry| Hold::of(&entry.claim) == Hold::Alone || !entry.seat.is_taken;
        let entering: Vec<_> = entries.iter().filter(enters).collect();
        let mut clock = None;
        let mut asking: Vec<usize> =
            (0..entries.len()).filter(|&at| Hold::of(&entries[at].claim) == Hold::Together).collect();
        if !entering.is_empty() {
            let mut rows = self.enter(conn, &entering, sign).await?;
            if rows.iter().any(|(.., is_new, _, _)| *is_new) {
                let new = entering.iter().zip(&rows).filter(|(_, (.., is_new, _, _))| *is_new);
                self.make(conn, names(new.map(|(entry, _)| &entry.claim))).await?;
                rows = self.enter(conn, &entering, sign).await?;
            }
            clock = rows.first().map(|(.., now)| now.cast_unsigned());
            let places = (0..entries.len()).filter(|&at| enters(&&entries[at]));
            for (at, (in_use, left, _, again, _)) in places.zip(rows) {
                let claim = &entries[at].claim;
                if Hold::of(claim) == Hold::Alone {
                    answers[at] = Took::refused(claim, in_use, left);
                    if again {
                        asking.push(at);
                    }
                }
            }
        }
        asking.sort_by_key(|&at| {
            (entries[at].claim.mode().code(), entries[at].claim.name(), entries[at].seat.number)
        });
        let mode = |at: usize| entries[at].claim.mode();
        for alike in asking.chunk_by(|&a, &b| mode(a) == mode(b)) {
            if mode(alike[0]) == Mode::Exclusive {
                let one = |&a: &usize, &b: &usize| entries[a].claim.name() == entries[b].claim.name();
                for line in alike.chunk_by(one) {
                    let Entry { claim, seat } = &entries[line[0]];
                    answers[line[0]] = self.claim_one(conn, claim, Some((*seat, sign))).await?.0;
                }
                continue;
            }
            for some in alike.chunks(crate::batch::JOINS) {
                let ask = |&at: &usize| Ask { claim: entries[at].claim.clone(), ticket: NO_TICKET };
                let asks: Vec<_> = some.iter().map(ask).collect();
                for (&at, took) in some.iter().zip(self.join(conn, mode(some[0]), &asks).await?) {
                    answers[at] = took;
                }
            }
        }
        Ok((answers, clock))
    }

    async fn enter(
        &self,
        conn: &mut PgConnection,
        entries: &[&Entry],
        sign: Sign,
    ) -> sqlx::Result<Vec<Entered>> {
        let claims = || entries.iter().map(|entry| &entry.claim);
        self.statement(&self.sql.enter)
            .bind(names(claims()))
            .bind(owners(claims()))
            .bind(labels(claims()))
            .bind(tokens(claims()))
            .bind(claims().map(|claim| claim.mode().code()).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.seat.number).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.seat.lease.map(micros)).collect::<Vec<_>>())
            .bind(sign.client)
            .bind(micros(PLACE_TTL))
            .bind(sign.number.cast_signed())
            .rows(conn)
            .await
    }

    /// Rows for locks that were never used.
    pub(super) async fn make(&self, conn: &mut PgConnection, names: Vec<&str>) -> sqlx::Result<()> {
        self.statement(&self.sql.make).bind(names).execute(conn).await.map(drop)
    }
}
