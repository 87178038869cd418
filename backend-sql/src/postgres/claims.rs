//! Claims with places: they take their locks, or enter the queue.

use lockcore::backend::PLACE_TTL;
use lockcore::{Claim, Mode};
use sqlx::postgres::PgConnection;

use super::{Postgres, labels, names, owners, tokens};
use crate::dialect::{Hold, NO_TICKET, QueuedClaim, Sign, TakeRequest, TryAcquire, block, micros, token};
use crate::groups::Groups;
use crate::places::QueueRow;

/// How often a claim asks if it finds the lock free or its own meanwhile. Afterwards it is refused.
const TRIES: usize = 3;

/// The token; the mode of the lock, and the time left; whether it has no row; whether to ask again; the server's clock; and
/// whether the answer is durable.
type Claimed = (Option<i64>, Option<i64>, Option<i64>, bool, bool, i64, bool);

/// The same for a claim that only takes a place.
type Entered = (Option<i64>, Option<i64>, bool, bool, i64);

impl Postgres {
    /// Takes one exclusive lock, for a claim with or without a place. Returns the server's clock if the request was a sign of
    /// life.
    pub(super) async fn claim_one(
        &self,
        conn: &mut PgConnection,
        claim: &Claim,
        place: Option<(QueueRow, Sign)>,
    ) -> sqlx::Result<(TryAcquire, Option<u64>)> {
        let (mut took, mut clock) = (TryAcquire::Busy(None), None);
        for _ in 0..TRIES {
            let row: Claimed = self
                .statement(&self.sql.claim)
                .bind(claim.name().as_str())
                .bind(claim.owner().as_uuid())
                .bind(micros(claim.ttl()))
                .bind(claim.label())
                .bind(block(claim))
                .bind(place.map(|(_, sign)| sign.client))
                .bind(place.map(|(row, _)| row.number))
                .bind(micros(PLACE_TTL))
                .bind(place.map(|(_, sign)| sign.number.cast_signed()))
                .bind(place.and_then(|(row, _)| row.lease).map(micros))
                .row(&mut *conn)
                .await?
                .ok_or(sqlx::Error::RowNotFound)?;
            let (taken, in_use, left, is_new, again, now, _) = row;
            if let Some(number) = taken {
                return Ok((TryAcquire::Granted(token(number)), clock));
            }
            if is_new {
                self.make(conn, vec![claim.name().as_str()]).await?;
                continue;
            }
            took = TryAcquire::refused(claim, in_use, left);
            clock = place.map(|_| now.cast_unsigned());
            if !again {
                break;
            }
        }
        Ok((took, clock))
    }

    /// Takes locks in any mode. Of several claims that want one lock exclusively, only the first asks for it.
    pub(super) async fn claim_many(
        &self,
        conn: &mut PgConnection,
        entries: &[QueuedClaim],
        sign: Sign,
    ) -> sqlx::Result<(Vec<TryAcquire>, Option<u64>)> {
        let mut answers = vec![TryAcquire::Busy(None); entries.len()];
        // A claim for a group that already has a place need not enter again.
        let enters = |entry: &&QueuedClaim| Hold::of(&entry.claim) == Hold::Alone || !entry.row.is_stored;
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
                    answers[at] = TryAcquire::refused(claim, in_use, left);
                    if again {
                        asking.push(at);
                    }
                }
            }
        }
        asking.sort_by_key(|&at| {
            (entries[at].claim.mode().code(), entries[at].claim.name(), entries[at].row.number)
        });
        let mode = |at: usize| entries[at].claim.mode();
        for alike in asking.chunk_by(|&a, &b| mode(a) == mode(b)) {
            if mode(alike[0]) == Mode::Exclusive {
                let one = |&a: &usize, &b: &usize| entries[a].claim.name() == entries[b].claim.name();
                for same_name in alike.chunk_by(one) {
                    let QueuedClaim { claim, row } = &entries[same_name[0]];
                    answers[same_name[0]] = self.claim_one(conn, claim, Some((*row, sign))).await?.0;
                }
                continue;
            }
            for some in alike.chunks(crate::batch::JOINS) {
                let request =
                    |&at: &usize| TakeRequest { claim: entries[at].claim.clone(), ticket: NO_TICKET };
                let requests: Vec<_> = some.iter().map(request).collect();
                for (&at, took) in some.iter().zip(self.join(conn, mode(some[0]), &requests).await?) {
                    answers[at] = took;
                }
            }
        }
        Ok((answers, clock))
    }

    async fn enter(
        &self,
        conn: &mut PgConnection,
        entries: &[&QueuedClaim],
        sign: Sign,
    ) -> sqlx::Result<Vec<Entered>> {
        let claims = || entries.iter().map(|entry| &entry.claim);
        self.statement(&self.sql.enter)
            .bind(names(claims()))
            .bind(owners(claims()))
            .bind(labels(claims()))
            .bind(tokens(claims()))
            .bind(claims().map(|claim| claim.mode().code()).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.row.number).collect::<Vec<_>>())
            .bind(entries.iter().map(|entry| entry.row.lease.map(micros)).collect::<Vec<_>>())
            .bind(sign.client)
            .bind(micros(PLACE_TTL))
            .bind(sign.number.cast_signed())
            .rows(conn)
            .await
    }

    /// Makes rows for locks that were never used.
    pub(super) async fn make(&self, conn: &mut PgConnection, names: Vec<&str>) -> sqlx::Result<()> {
        self.statement(&self.sql.make).bind(names).execute(conn).await.map(drop)
    }
}
