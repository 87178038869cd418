//! What a batch of requests comes to: claims that hold alone and claims that hold together are told apart here.

use std::cmp::Ordering;
use std::time::Duration;

use lockcore::Grant;
use lockcore::backend::Waiters;

use crate::dialect::{Ask, Dialect, Extension, Hold, Took};

/// The most claims that are let into groups at once: the rows of their locks are locked until all of them are in.
const JOINS: usize = 64;

/// Takes each lock that is free for its claim.
///
/// Groups with members whose leases have ended are put in order first. A claim that is a member already asks again after
/// a lost answer: its lease begins anew, as the belief in it does.
pub(crate) async fn take<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    asks: &[Ask],
) -> sqlx::Result<Vec<Took>> {
    let mut answers = ask(dialect, conn, asks).await?;
    let stale: Vec<usize> = (0..asks.len()).filter(|&at| answers[at] == Took::Stale).collect();
    if !stale.is_empty() {
        let again = pick(asks, &stale);
        let mut names: Vec<_> = again.iter().map(|ask| ask.claim.name().clone()).collect();
        names.sort_unstable();
        names.dedup();
        for ticket in dialect.reap(conn, &names, waiters).await? {
            waiters.notify(ticket);
        }
        for (at, answer) in stale.into_iter().zip(ask(dialect, conn, &again).await?) {
            // What is still there is locked by a transaction.
            answers[at] = if answer == Took::Stale { Took::Busy(None) } else { answer };
        }
    }
    let mut known = Vec::new();
    for (answer, Ask { claim, .. }) in answers.iter_mut().zip(asks) {
        if let Took::Member(token) = *answer {
            known.push((answer, Grant::new(claim, token, claim.began())));
        }
    }
    if !known.is_empty() {
        let grants: Vec<_> = known.iter().map(|(_, grant)| grant.clone()).collect();
        let extensions = dialect.renew(conn, Hold::Together, &grants).await?;
        for ((answer, grant), extension) in known.into_iter().zip(extensions) {
            let is_kept = extension == Extension::Extended;
            *answer = if is_kept { Took::Granted(grant.last_token()) } else { Took::Busy(None) };
        }
    }
    Ok(answers)
}

async fn ask<D: Dialect>(dialect: &D, conn: &mut D::Conn, asks: &[Ask]) -> sqlx::Result<Vec<Took>> {
    if let [ask] = asks {
        return match Hold::of(&ask.claim) {
            Hold::Alone => dialect.take(conn, asks).await,
            Hold::Together => dialect.join(conn, ask.claim.mode(), asks).await,
        };
    }
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by(|&a, &b| in_line(&asks[a], &asks[b]));
    let (alone, mut together): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|&at| Hold::of(&asks[at].claim) == Hold::Alone);
    let mut answers = vec![Took::Busy(None); asks.len()];

    // Of several who want a lock alone, only the one that stands first is worth a question: if it is refused, so are
    // those behind it; if not, they are refused by it.
    let lines: Vec<_> = alone.chunk_by(|&a, &b| asks[a].claim.name() == asks[b].claim.name()).collect();
    let firsts: Vec<_> = lines.iter().map(|line| line[0]).collect();
    if !firsts.is_empty() {
        for (line, took) in lines.iter().zip(dialect.take(conn, &pick(asks, &firsts)).await?) {
            answers[line[0]] = took;
            if matches!(took, Took::Stale | Took::Clash(_)) {
                line.iter().for_each(|&at| answers[at] = took);
            }
        }
    }
    let mode = |at: usize| asks[at].claim.mode();
    together.sort_by_key(|&at| mode(at).code());
    for some in together.chunk_by(|&a, &b| mode(a) == mode(b)).flat_map(|alike| alike.chunks(JOINS)) {
        for (&at, took) in some.iter().zip(dialect.join(conn, mode(some[0]), &pick(asks, some)).await?) {
            answers[at] = took;
        }
    }
    Ok(answers)
}

/// By name, and in the order of the queue.
fn in_line(a: &Ask, b: &Ask) -> Ordering {
    (a.claim.name(), a.ticket).cmp(&(b.claim.name(), b.ticket))
}

fn pick(asks: &[Ask], places: &[usize]) -> Vec<Ask> {
    places.iter().map(|&at| asks[at].clone()).collect()
}

/// Extends leases, those of holders and those of members.
pub(crate) async fn renew<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    grants: &[Grant],
) -> sqlx::Result<Vec<Extension>> {
    let mut answers = vec![Extension::Lost; grants.len()];
    for hold in [Hold::Alone, Hold::Together] {
        let places: Vec<usize> =
            (0..grants.len()).filter(|&at| Hold::of(grants[at].claim()) == hold).collect();
        if places.is_empty() {
            continue;
        }
        let some: Vec<_> = places.iter().map(|&at| grants[at].clone()).collect();
        for (at, answer) in places.into_iter().zip(dialect.renew(conn, hold, &some).await?) {
            answers[at] = answer;
        }
    }
    Ok(answers)
}

/// Deletes what nobody has used for `idle`, members whose leases ended that long ago included.
pub(crate) async fn purge<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    idle: Duration,
) -> sqlx::Result<u64> {
    let deserted = dialect.deserted(conn, idle).await?;
    if !deserted.is_empty() {
        for ticket in dialect.reap(conn, &deserted, waiters).await? {
            waiters.notify(ticket);
        }
    }
    dialect.purge(conn, idle).await
}
