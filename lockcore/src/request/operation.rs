//! Acquires, from the claim to the guard.

use std::sync::{Arc, Weak};

use crate::background::{AcquireStatus, Armed, Background, Next, UnderWay};
use crate::hold::{HandOff, HandedLock, LockQueues};
use crate::lease::{Limits, PassOn};
use crate::local::{ClaimTurn, Turn};
use crate::telemetry::Watch;
use crate::{Claim, Error, ErrorKind, Grant, LockGuard, LockName, Operation, Result};

/// An acquire under way.
pub(crate) type Acquiring = UnderWay<Result<Option<LockGuard>>>;

/// Acquires a lock. `None`: the wait ended.
pub(crate) fn acquire(
    background: Arc<Background>,
    claim: Claim,
    limits: Limits,
    local: Option<Arc<LockQueues>>,
) -> Acquiring {
    // Only a claim with the turn of its local queue has a next task to pass it on to.
    let next = local.as_ref().map(|_| Next::default());
    let (shared, asked, known) = (Arc::clone(&background), claim.clone(), next.clone());
    let mut watch = background.telemetry.watch(&claim);
    let work = async move {
        let mut turn = None;
        if let Some(local) = local {
            turn = match local.turn(&claim).await {
                None => return Ok(None),
                Some(Turn::Claim(turn)) => Some(Arc::new(turn)),
                Some(Turn::Handed(lock)) => match lock.take(limits) {
                    Ok(guard) => return Ok(Some(guard)),
                    Err(turn) => turn.map(Arc::new),
                },
            };
            if let (Some(turn), Some(known)) = (&turn, known) {
                let turn: Weak<dyn PassOn> = Arc::<ClaimTurn<HandedLock>>::downgrade(turn);
                // It is set once, here.
                drop(known.set(turn));
            }
        }
        let armed = Armed::new(background, claim);
        let acquire = armed.background().backend.acquire(armed.claim());
        let answer = match &turn {
            Some(turn) => turn.pulse().over(acquire).await,
            None => acquire.await,
        };
        settle(armed, answer, limits, turn)
    };
    let entry = shared.enter(&asked);
    let (closing, name) = (Arc::clone(&shared), asked.name().clone());
    let watched = async move {
        let answer = match entry {
            Ok(entry) => {
                let answer = unless_closed(&closing, &name, watch.over(work).await);
                drop(entry);
                answer
            }
            Err(closed) => Err(closing.decorate(closed, Operation::Acquire, Some(&name))),
        };
        end(watch, answer)
    };
    UnderWay::new(&shared, Vec::new(), watched).cancelling(asked, next)
}

/// Acquires several locks at the same time, without waiting.
pub(crate) fn acquire_each(
    background: &Arc<Background>,
    claims: Vec<Claim>,
    limits: Limits,
) -> UnderWay<Vec<Result<Option<LockGuard>>>> {
    let armed: Vec<_> =
        claims.iter().map(|claim| Armed::new(Arc::clone(background), claim.clone())).collect();
    let backend = Arc::clone(&background.backend);
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
        let answers =
            settled.map(|((armed, answer), watch)| end(watch, settle(armed, answer, limits, None))).collect();
        drop(entries);
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
    turn: Option<Arc<ClaimTurn<HandedLock>>>,
) -> Result<Option<LockGuard>> {
    let error = match answer {
        Ok(Some(grant)) => {
            let background = armed.background();
            if let Err(error) = background.check_open() {
                // The client was closed while it waited. It would not be renewed.
                let error = decorate(&armed, error);
                armed.release_in_background(AcquireStatus::Answered);
                return Err(error);
            }
            if !background.clock.has_passed(grant.deadline()) {
                let hand_off = turn.and_then(|turn| HandOff::new(turn, &background.clock));
                let guard = LockGuard::new(background, grant, limits, hand_off);
                armed.disarm();
                return Ok(Some(guard));
            }
            // The answer was under way for longer than the lease lasts: the lock is not held any more.
            let text = "the lock was granted, but the answer came after the lease had ended";
            decorate(&armed, Error::new(ErrorKind::Unreachable, text))
        }
        Ok(None) if armed.claim().may_be_queued() => {
            armed.release_in_background(AcquireStatus::Answered);
            return Ok(None);
        }
        Ok(None) => {
            armed.disarm();
            return Ok(None);
        }
        Err(error) => decorate(&armed, error),
    };
    if proves_nothing_done(&error) && !armed.claim().may_be_queued() {
        armed.disarm();
    } else {
        armed.release_in_background(AcquireStatus::Unanswered);
    }
    Err(error)
}

fn decorate(armed: &Armed, error: Error) -> Error {
    armed.background().decorate(error, Operation::Acquire, Some(armed.claim().name()))
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
