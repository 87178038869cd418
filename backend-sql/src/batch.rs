//! What a batch of requests comes to: claims that hold alone and claims that hold together are told apart here.

use std::cmp::Ordering;

use lockcore::backend::Waiters;
use lockcore::{Claim, Grant};

use crate::dialect::{Ask, Dialect, Entry, Extension, Hold, Sign, Took};

/// The most claims that are let into groups at once: the rows of their locks are locked until all of them are in.
pub(crate) const JOINS: usize = 64;

/// Takes each lock that is free for its claim.
///
/// Groups with members whose leases have ended are put in order first. A claim that is a member already asks again after
/// a lost answer: its lease begins anew, as its validity does.
pub(crate) async fn take<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    asks: &[Ask],
) -> sqlx::Result<Vec<Took>> {
    let mut answers = ask(dialect, conn, asks).await?;
    let claims: Vec<_> = asks.iter().map(|ask| ask.claim.clone()).collect();
    let stale = reap_stale(dialect, waiters, conn, &claims, &answers).await?;
    if !stale.is_empty() {
        let again = ask(dialect, conn, &pick(asks, &stale)).await?;
        replace(&mut answers, stale, again);
    }
    renew_members(dialect, conn, &claims, &mut answers).await?;
    Ok(answers)
}

/// The same for claims with places, where releases hand locks over. Answers with the server's clock, too, if
/// it was a sign of life.
pub(crate) async fn claim<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    entries: &[Entry],
    sign: Sign,
) -> sqlx::Result<(Vec<Took>, Option<u64>)> {
    let (mut answers, clock) = dialect.claim(conn, entries, sign).await?;
    let claims: Vec<_> = entries.iter().map(|entry| entry.claim.clone()).collect();
    let stale = reap_stale(dialect, waiters, conn, &claims, &answers).await?;
    if !stale.is_empty() {
        let (again, _) = dialect.claim(conn, &pick(entries, &stale), sign).await?;
        replace(&mut answers, stale, again);
    }
    renew_members(dialect, conn, &claims, &mut answers).await?;
    Ok((answers, clock))
}

/// Takes dead members out of the groups that they keep others out of, and answers which claims are to ask again.
async fn reap_stale<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    claims: &[Claim],
    answers: &[Took],
) -> sqlx::Result<Vec<usize>> {
    let stale: Vec<usize> = (0..claims.len()).filter(|&at| answers[at] == Took::Stale).collect();
    if stale.is_empty() {
        return Ok(stale);
    }
    let mut names: Vec<_> = stale.iter().map(|&at| claims[at].name().clone()).collect();
    names.sort_unstable();
    names.dedup();
    for ticket in dialect.reap(conn, &names, waiters).await? {
        waiters.notify(ticket);
    }
    Ok(stale)
}

/// Puts the second answers in. What is still stale is locked by a transaction.
fn replace(answers: &mut [Took], places: Vec<usize>, again: Vec<Took>) {
    for (at, answer) in places.into_iter().zip(again) {
        answers[at] = if answer == Took::Stale { Took::Busy(None) } else { answer };
    }
}

/// Begins the leases anew of claims that are members already.
async fn renew_members<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    claims: &[Claim],
    answers: &mut [Took],
) -> sqlx::Result<()> {
    let mut known = Vec::new();
    for (answer, claim) in answers.iter_mut().zip(claims) {
        if let Took::Member(token) = *answer {
            known.push((answer, Grant::new(claim, token, claim.began())));
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    let grants: Vec<_> = known.iter().map(|(_, grant)| grant.clone()).collect();
    let extensions = dialect.renew(conn, Hold::Together, &grants).await?;
    for ((answer, grant), extension) in known.into_iter().zip(extensions) {
        let is_kept = extension == Extension::Extended;
        *answer = if is_kept { Took::Granted(grant.last_token()) } else { Took::Busy(None) };
    }
    Ok(())
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

fn pick<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&at| all[at].clone()).collect()
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
