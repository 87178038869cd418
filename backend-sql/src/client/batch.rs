//! Carries out a batch of requests. It sends claims that want a lock alone and claims that join a group to
//! different statements.

use std::cmp::Ordering;
use std::sync::Arc;

use lockwell_core::backend::Waiters;
use lockwell_core::{Claim, Grant};

use crate::dialect::Dialect;
use crate::dialect::requests::{Answer, Request};
use crate::words::{Extension, Hold, JOINS, TakeRequest, TryAcquire};

/// Carries out a batch of one kind of requests. Returns an answer to each of them.
pub(crate) async fn carry_out<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    batch: &[Arc<Request<D>>],
) -> sqlx_core::Result<Vec<Answer>> {
    let claims = || batch.iter().filter_map(|one| one.claim().cloned()).collect::<Vec<_>>();
    let freed = match &*batch[0] {
        Request::Take(_) => {
            let request = |one: &Arc<Request<D>>| match &**one {
                Request::Take(request) => Some(request.clone()),
                _ => None,
            };
            let requests: Vec<_> = batch.iter().filter_map(request).collect();
            let took = take(dialect, waiters, conn, &requests).await?;
            return Ok(took.into_iter().map(Answer::Took).collect());
        }
        Request::Leave(_) => dialect.leave_each(conn, &claims()).await?,
        Request::Release(_) => dialect.release(conn, &claims()).await?,
        Request::LeaveGroup(_) => dialect.leave_group(conn, &claims()).await?,
        Request::Renew(grants) => return Ok(vec![Answer::Renewed(renew(dialect, conn, grants).await?)]),
        Request::Job(job) => {
            (job.0)(dialect, conn).await?;
            return Ok(vec![Answer::Done]);
        }
        _ => return dialect.queue(conn, waiters, batch).await,
    };
    Ok(freed.into_iter().map(Answer::Freed).collect())
}

/// Takes each lock that is free for its claim.
///
/// Members whose leases have ended are removed from their groups first. A claim that is already a member
/// repeats a request whose answer was lost: its lease is renewed, and its validity starts again.
async fn take<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    requests: &[TakeRequest],
) -> sqlx_core::Result<Vec<TryAcquire>> {
    let mut answers = take_or_join(dialect, conn, requests).await?;
    let claims: Vec<_> = requests.iter().map(|request| request.claim.clone()).collect();
    let stale = reap_stale(dialect, waiters, conn, &claims, &answers).await?;
    if !stale.is_empty() {
        let again = take_or_join(dialect, conn, &pick(requests, &stale)).await?;
        replace(&mut answers, stale, again);
    }
    renew_members(dialect, conn, &claims, &mut answers).await?;
    Ok(answers)
}

/// Removes members whose leases have ended from their groups. Returns the claims that must ask again.
pub(crate) async fn reap_stale<D: Dialect>(
    dialect: &D,
    waiters: &Waiters,
    conn: &mut D::Conn,
    claims: &[Claim],
    answers: &[TryAcquire],
) -> sqlx_core::Result<Vec<usize>> {
    let stale: Vec<usize> = (0..claims.len()).filter(|&at| answers[at] == TryAcquire::Stale).collect();
    if stale.is_empty() {
        return Ok(stale);
    }
    let mut names: Vec<_> = stale.iter().map(|&at| claims[at].name().clone()).collect();
    names.sort_unstable();
    names.dedup();
    for ticket in dialect.reap(conn, &names).await? {
        waiters.notify(ticket);
    }
    Ok(stale)
}

/// Replaces answers by those of the second try. If a group still has dead members, a transaction has locked
/// their rows.
pub(crate) fn replace(answers: &mut [TryAcquire], places: Vec<usize>, again: Vec<TryAcquire>) {
    for (at, answer) in places.into_iter().zip(again) {
        answers[at] = if answer == TryAcquire::Stale { TryAcquire::REFUSED } else { answer };
    }
}

/// Renews the leases of claims that are already members.
pub(crate) async fn renew_members<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    claims: &[Claim],
    answers: &mut [TryAcquire],
) -> sqlx_core::Result<()> {
    let mut known = Vec::new();
    for (answer, claim) in answers.iter_mut().zip(claims) {
        if let TryAcquire::Member(token) = *answer {
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
        *answer = if is_kept { TryAcquire::Granted(grant.last_token()) } else { TryAcquire::REFUSED };
    }
    Ok(())
}

async fn take_or_join<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    requests: &[TakeRequest],
) -> sqlx_core::Result<Vec<TryAcquire>> {
    if let [request] = requests {
        return match Hold::of(&request.claim) {
            Hold::Alone => dialect.take(conn, requests).await,
            Hold::Together => dialect.join(conn, request.claim.mode(), requests).await,
        };
    }
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by(|&a, &b| queue_order(&requests[a], &requests[b]));
    let (alone, mut together): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|&at| Hold::of(&requests[at].claim) == Hold::Alone);
    let mut answers = vec![TryAcquire::REFUSED; requests.len()];

    // Of several claims that want one lock alone, only the first in the queue asks. If it is refused, the
    // others are refused for the same reason; if it is granted, it refuses the others.
    let by_name: Vec<_> =
        alone.chunk_by(|&a, &b| requests[a].claim.name() == requests[b].claim.name()).collect();
    let firsts: Vec<_> = by_name.iter().map(|same_name| same_name[0]).collect();
    if !firsts.is_empty() {
        for (same_name, took) in by_name.iter().zip(dialect.take(conn, &pick(requests, &firsts)).await?) {
            answers[same_name[0]] = took;
            if matches!(took, TryAcquire::Stale | TryAcquire::Busy(..)) {
                same_name.iter().for_each(|&at| answers[at] = took);
            }
        }
    }
    let mode = |at: usize| requests[at].claim.mode();
    together.sort_by_key(|&at| mode(at).code());
    for some in together.chunk_by(|&a, &b| mode(a) == mode(b)).flat_map(|alike| alike.chunks(JOINS)) {
        for (&at, took) in some.iter().zip(dialect.join(conn, mode(some[0]), &pick(requests, some)).await?) {
            answers[at] = took;
        }
    }
    Ok(answers)
}

/// By name, and in the order of the queue.
fn queue_order(a: &TakeRequest, b: &TakeRequest) -> Ordering {
    (a.claim.name(), a.ticket).cmp(&(b.claim.name(), b.ticket))
}

pub(crate) fn pick<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&at| all[at].clone()).collect()
}

/// Extends leases, those of holders and those of members.
async fn renew<D: Dialect>(
    dialect: &D,
    conn: &mut D::Conn,
    grants: &[Grant],
) -> sqlx_core::Result<Vec<Extension>> {
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
