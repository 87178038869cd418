//! Acquires, from the claim to the guard.

use std::pin::pin;
use std::sync::Arc;

use crate::background::{AcquireStatus, Armed, Background, UnderWay};
use crate::contract::{Fate, PassOn};
use crate::hold::{Slice, to_next_claimant};
use crate::lease::Limits;
use crate::local::{ClaimTurn, LocalQueues, Turn};
use crate::telemetry::Watch;
use crate::{Claim, Error, ErrorKind, Grant, LockGuard, LockName, Operation, Result};

/// An acquire under way.
pub(crate) type Acquiring = UnderWay<Result<Option<LockGuard>>>;

/// Acquires a lock. `None`: the wait ended.
pub(crate) fn acquire(
    background: Arc<Background>,
    claim: Claim,
    limits: Limits,
    local: Option<Arc<LocalQueues>>,
) -> Acquiring {
    let mut watch = background.telemetry.watch(&claim);
    let entry = background.enter(&claim);
    let (shared, asked) = (Arc::clone(&background), claim.clone());
    // The work is made within the future that waits for it, so that it is stored once.
    let watched = async move {
        let answer = match entry {
            Ok(entry) => {
                let work = pin!(claim_and_settle(Arc::clone(&background), &claim, limits, local));
                let answer = unless_closed(&background, claim.name(), watch.over(work).await);
                drop(entry);
                answer
            }
            Err(closed) => Err(background.decorate(closed, Operation::Acquire, Some(claim.name()))),
        };
        end(watch, answer)
    };
    UnderWay::new(&shared, Vec::new(), watched).cancelling(asked)
}

/// Waits for the turn of the claim in the queue of this process, if there is one, and asks the server.
async fn claim_and_settle(
    background: Arc<Background>,
    claim: &Claim,
    limits: Limits,
    local: Option<Arc<LocalQueues>>,
) -> Result<Option<LockGuard>> {
    let turn = match local {
        None => None,
        Some(local) => match local.turn(claim).await {
            Err(error) => return Err(background.decorate(error, Operation::Acquire, Some(claim.name()))),
            Ok(None) => return Ok(None),
            Ok(Some(Turn::Beside)) => None,
            Ok(Some(Turn::Claim(turn))) => Some(Arc::new(turn)),
            Ok(Some(Turn::Handed(turn, lock))) => {
                // After a close it would not be renewed, so it is released.
                background.check_open()?;
                match lock.take(&turn, limits) {
                    Some(guard) => return Ok(Some(guard)),
                    None => Some(turn),
                }
            }
        },
    };
    if let Some(turn) = &turn {
        claim.turn().put(Arc::clone(turn) as Arc<dyn PassOn>);
        turn.begin(claim, background.has_token_blocks());
    }
    let armed = Armed::new(background, claim.clone());
    let acquire = armed.background().backend.acquire(armed.claim());
    let answer = match &turn {
        Some(turn) => turn.pulse().over(acquire).await,
        None => acquire.await,
    };
    match (&turn, &answer) {
        (Some(turn), Err(error)) if tells_of_the_server(error) && !has_left_early(claim) => turn.scatter(),
        _ => (),
    }
    let background = Arc::clone(armed.background());
    let settled = settle(armed, answer, limits, turn);
    if settled.is_err() {
        background.slow_down().await;
    }
    settled
}

/// Acquires several locks at the same time, without waiting.
pub(crate) fn acquire_each(
    background: &Arc<Background>,
    claims: Vec<Claim>,
    limits: Limits,
) -> UnderWay<Vec<Result<Option<LockGuard>>>> {
    let armed: Vec<_> =
        claims.iter().map(|claim| Armed::new(Arc::clone(background), claim.clone())).collect();
    let (shared, backend) = (Arc::clone(background), Arc::clone(&background.backend));
    let watches: Vec<_> = claims.iter().map(|claim| background.telemetry.watch(claim)).collect();
    let entries: Result<Vec<_>> = claims.iter().map(|claim| background.enter(claim)).collect();
    UnderWay::new(background, claims.clone(), async move {
        let entries = match entries {
            Ok(entries) => entries,
            Err(closed) => {
                // Nothing was sent.
                let refused = armed.into_iter().map(|armed| {
                    let error = decorate(&armed, closed.duplicate());
                    armed.disarm();
                    Err(error)
                });
                return refused.zip(watches).map(|(refused, watch)| end(watch, refused)).collect();
            }
        };
        let answers = backend.acquire_each(&claims).await;
        let settled = armed.into_iter().zip(answers).zip(watches);
        let answers: Vec<_> =
            settled.map(|((armed, answer), watch)| end(watch, settle(armed, answer, limits, None))).collect();
        drop(entries);
        if answers.iter().any(Result::is_err) {
            shared.slow_down().await;
        }
        answers
    })
}

/// The answer to an acquire. Without a guard it is that the client was closed, if it was: that may be the
/// reason.
fn unless_closed(
    background: &Background,
    name: &LockName,
    answer: Result<Option<LockGuard>>,
) -> Result<Option<LockGuard>> {
    match (answer, background.check_open()) {
        (Ok(None) | Err(_), Err(closed)) => Err(background.decorate(closed, Operation::Acquire, Some(name))),
        (answer, _) => answer,
    }
}

/// Ends the acquire, and returns its guard.
fn end(watch: Watch, answer: Result<Option<LockGuard>>) -> Result<Option<LockGuard>> {
    watch.end(answer.as_ref().map(|guard| guard.as_ref().map(LockGuard::token)));
    Ok(answer?.map(LockGuard::with_span))
}

/// Makes a guard of the answer to an acquire. There is no await in here: the guard replaces the armed claim
/// in one step.
fn settle(
    armed: Armed,
    answer: Result<Option<Grant>>,
    limits: Limits,
    turn: Option<Arc<ClaimTurn>>,
) -> Result<Option<LockGuard>> {
    let claim = armed.claim().clone();
    let error = match answer {
        Ok(Some(grant)) => {
            let is_granted = claim.decide(Fate::Granted);
            let open = armed.background().check_open();
            if open.is_err() || !is_granted {
                // The client was closed while it waited: the lock would not be renewed. Or the keeper
                // releases it, since nobody has driven this, and the answer goes nowhere.
                let answer = open.map(|()| None).map_err(|error| decorate(&armed, error));
                armed.release_in_background(AcquireStatus::Answered);
                claim.turn().pass_on();
                return answer;
            }
            if !armed.background().clock.has_passed(grant.deadline()) {
                return Ok(granted(armed, grant, limits, turn));
            }
            // The answer was under way for longer than the lease lasts: the lock is not held any more.
            let text = "the lock was granted, but the answer came after the lease had ended";
            Some(decorate(&armed, Error::new(ErrorKind::Unreachable, text)))
        }
        Ok(None) => None,
        Err(error) => Some(decorate(&armed, error)),
    };
    // It may have a place in a queue, or a copy of its request may still arrive and find the lock free.
    let leaves_nothing = !claim.may_be_queued() && claim.in_doubt_until().is_none();
    match &error {
        None if leaves_nothing => armed.disarm(),
        None => armed.release_in_background(AcquireStatus::Answered),
        Some(error) if leaves_nothing && proves_nothing_done(error) => armed.disarm(),
        Some(_) => armed.release_in_background(AcquireStatus::Unanswered),
    }
    claim.turn().pass_on();
    error.map_or(Ok(None), Err)
}

/// Makes a guard of a grant. `None`: its caller has left, and the next task has the lock, with its turn.
fn granted(armed: Armed, grant: Grant, limits: Limits, turn: Option<Arc<ClaimTurn>>) -> Option<LockGuard> {
    let armed = match &turn {
        Some(turn) if armed.claim().has_no_caller() => to_next_claimant(turn, &grant, armed)?,
        _ => armed,
    };
    let slice = turn.and_then(|turn| Slice::new(turn, armed.background(), &grant));
    let guard = LockGuard::new(armed.background(), grant, limits, slice);
    armed.disarm();
    Some(guard)
}

fn decorate(armed: &Armed, error: Error) -> Error {
    armed.background().decorate(error, Operation::Acquire, Some(armed.claim().name()))
}

/// Whether an error may be that of all who ask this server now.
fn tells_of_the_server(error: &Error) -> bool {
    // In a grace period the next one asks for all, and waits for its end.
    let others = [ErrorKind::TimedOut, ErrorKind::Cancelled, ErrorKind::Closed, ErrorKind::GracePeriod];
    !others.contains(&error.kind())
}

/// Whether the caller has left, and the server had little time for its answer: then an error says nothing
/// about the server.
fn has_left_early(claim: &Claim) -> bool {
    claim.has_no_caller() && !claim.has_answer() && claim.silence().is_none()
}

/// Whether this error of an acquire proves that the server has not acted on the claim.
fn proves_nothing_done(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput
            | ErrorKind::Unsupported
            | ErrorKind::KindClash
            | ErrorKind::Cancelled
            | ErrorKind::Overloaded
            | ErrorKind::Closed
    )
}

#[cfg(test)]
mod tests {
    use super::super::Choices;
    use crate::Locks;

    #[test]
    fn what_an_acquire_consists_of_is_stored_once() {
        let acquiring = Locks::in_memory().lock("a").checked(Choices::until).unwrap().begin();
        // Twice of it would be more than that.
        assert!(acquiring.size() < 1500, "{} bytes", acquiring.size());
    }
}
