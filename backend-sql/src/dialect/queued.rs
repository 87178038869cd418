//! Claims with places in the queue, on databases where a release grants the lock to a waiter: the claims
//! first take their places, then those that can get their locks ask for them.

use std::time::Duration;

use lockwell_core::{Claim, Mode};
use uuid::Uuid;

use crate::dialect::Dialect;
use crate::dialect::database::Outcome;
use crate::words::{Hold, JOINS, QueueRow, QueuedClaim, TakeRequest, TryAcquire, WaiterPoll};

/// How often a claim asks if it finds the lock free or its own meanwhile. Afterwards it is refused.
pub(crate) const TRIES: usize = 3;

/// For how long after a heartbeat a claim enters the queue without another one. A place counts for 4 s after
/// the last heartbeat, and the client gives the next one at most 1.3 s after the claim has entered.
pub(crate) const SIGNED_LATELY: Duration = Duration::from_millis(500);

/// A queue whose places the clients number. A release grants the lock to the first waiter. One heartbeat
/// (`sign` is its number: a grant contains that of the last one that the server had seen) counts for all waiters of a
/// client. All requests are idempotent for a given owner.
pub(crate) trait HandOverQueue: Dialect {
    /// Takes each lock that is free for its claim, or a place in its queue. A claim that has a place keeps
    /// it. If the request was a heartbeat of the client, it returns the server's clock as well, in
    /// microseconds.
    fn claim(
        &self,
        conn: &mut Self::Conn,
        entries: &[QueuedClaim],
        sign: i64,
    ) -> impl Outcome<(Vec<TryAcquire>, Option<u64>)>;

    /// Takes places at the end of the queue. A claim that has a place keeps it. It may be a heartbeat of the
    /// client.
    fn enter(&self, conn: &mut Self::Conn, entries: &[&QueuedClaim], sign: i64)
    -> impl Outcome<Vec<Entered>>;

    /// Takes exclusive locks that are free for these claims, and gives their places up. No two claims want
    /// the same lock. The number of round trips does not depend on the number of claims.
    fn take_with_places(
        &self,
        conn: &mut Self::Conn,
        entries: &[&QueuedClaim],
        sign: i64,
    ) -> impl Outcome<Vec<TryAcquire>>;

    /// Gives a heartbeat for all waiters of the client, and asks about those with these numbers and owners:
    /// which of them have no place any more (for example after a grant whose notification was lost), and
    /// which find their lock free.
    fn poll_waiters(
        &self,
        conn: &mut Self::Conn,
        places: &[(i64, Uuid)],
        sign: i64,
    ) -> impl Outcome<WaiterPoll>;
}

/// The state of a lock when a claim had taken its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// The mode in which the lock is held or, if it is free, the mode that the first waiter ahead wants.
    pub(crate) in_use: Option<i64>,
    /// The time in microseconds until the first lease of its holders ends.
    pub(crate) left: Option<i64>,
    /// The claim holds the lock, or can take it: it must ask.
    pub(crate) asks: bool,
    /// The lock's row does not say that somebody waits, since a transaction has locked it.
    pub(crate) blocked: bool,
    /// The server's clock, in microseconds, if the request was a heartbeat.
    pub(crate) clock: Option<u64>,
}

/// Takes locks in any mode. Of several claims that want one lock exclusively, only the first asks for it.
/// Returns the server's clock as well, if it was a heartbeat.
pub(crate) async fn claim_each<D: HandOverQueue>(
    dialect: &D,
    conn: &mut D::Conn,
    entries: &[QueuedClaim],
    sign: i64,
) -> sqlx_core::Result<(Vec<TryAcquire>, Option<u64>)> {
    let mut answers = vec![TryAcquire::REFUSED; entries.len()];
    // Places are given in this order, so that the first that asks is also the first in the queue.
    let mut places: Vec<usize> = (0..entries.len()).filter(|&at| enters(&entries[at])).collect();
    places.sort_by_key(|&at| turn(entries[at].row));
    let mut asking: Vec<usize> =
        (0..entries.len()).filter(|&at| Hold::of(&entries[at].claim) == Hold::Together).collect();
    let mut clock = None;
    let mut unmarked = vec![false; entries.len()];
    if !places.is_empty() {
        let entering: Vec<&QueuedClaim> = places.iter().map(|&at| &entries[at]).collect();
        let entered = dialect.enter(conn, &entering, sign).await?;
        clock = entered.first().and_then(|one| one.clock);
        for (at, one) in places.into_iter().zip(entered) {
            let claim: &Claim = &entries[at].claim;
            unmarked[at] = one.blocked;
            if Hold::of(claim) == Hold::Alone {
                answers[at] =
                    if one.blocked { TryAcquire::Blocked } else { TryAcquire::refused(one.in_use, one.left) };
                if one.asks {
                    asking.push(at);
                }
            }
        }
    }
    asking.sort_by_key(|&at| {
        (entries[at].claim.mode().code(), entries[at].claim.name(), turn(entries[at].row))
    });
    let mode = |at: usize| entries[at].claim.mode();
    for alike in asking.chunk_by(|&a, &b| mode(a) == mode(b)) {
        if mode(alike[0]) == Mode::Exclusive {
            let is_same = |&a: &usize, &b: &usize| entries[a].claim.name() == entries[b].claim.name();
            let firsts: Vec<usize> = alike.chunk_by(is_same).map(|same_name| same_name[0]).collect();
            for some in firsts.chunks(JOINS) {
                let taking: Vec<&QueuedClaim> = some.iter().map(|&at| &entries[at]).collect();
                for (&at, took) in some.iter().zip(dialect.take_with_places(conn, &taking, sign).await?) {
                    answers[at] = took;
                }
            }
            continue;
        }
        for some in alike.chunks(JOINS) {
            let request = |&at: &usize| {
                let QueuedClaim { claim, row } = &entries[at];
                TakeRequest::new(claim, row.number)
            };
            let requests: Vec<_> = some.iter().map(request).collect();
            for (&at, took) in some.iter().zip(dialect.join(conn, mode(some[0]), &requests).await?) {
                // The release of the lock would not look for its place: it asks again soon.
                let is_unseen = unmarked[at] && matches!(took, TryAcquire::Busy(..));
                answers[at] = if is_unseen { TryAcquire::Blocked } else { took };
            }
        }
    }
    Ok((answers, clock))
}

/// The order of the claims of one client in a queue, as far as the client knows it: those with places first,
/// in the order of their numbers. Threads may send their claims in another order than they number them. If a
/// claim asked that is not the first, it would be refused for the sake of one that does not ask, and a lock
/// that is free would stay free until the next poll.
fn turn(row: QueueRow) -> (bool, i64) {
    (!row.is_stored, row.number)
}

/// A claim for a group that already has a place need not enter again.
fn enters(entry: &QueuedClaim) -> bool {
    Hold::of(&entry.claim) == Hold::Alone || !entry.row.is_stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_place_is_before_who_has_none() {
        let row = |number: i64, is_stored: bool| QueueRow { number, lease: None, is_stored };
        let mut rows = [row(9, false), row(12, true), row(3, false), row(7, true)];
        rows.sort_by_key(|row| turn(*row));
        assert_eq!(rows.map(|row| row.number), [7, 12, 3, 9]);
    }
}
