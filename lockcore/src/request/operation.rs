//! Acquires, from the claim to the guard.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use tracing::Span;

use super::patience::Patience;
use crate::background::{Book, Stub, UnderWay};
use crate::contract::PassOn;
use crate::hold::{Slice, to_next_claimant};
use crate::life::Limits;
use crate::local::{ClaimTurn, LocalQueues, Turn};
use crate::telemetry::Watch;
use crate::{Claim, Clock, Error, ErrorKind, Grant, LockGuard, LockName, Operation, Result};

/// An acquire under way.
pub(crate) type Acquiring = UnderWay<Result<Option<LockGuard>>>;

/// Acquires a lock. `None`: the wait ended.
pub(crate) fn acquire(
    book: Arc<Book>,
    claim: Claim,
    limits: Limits,
    local: Option<Arc<LocalQueues>>,
    patience: Patience,
) -> Acquiring {
    let mut watch = book.telemetry.watch(&claim);
    let stub = book.open(&claim);
    let (shared, asked) = (Arc::clone(&book), claim.clone());
    // The work is made within the future that waits for it, so that it is stored once.
    let watched = async move {
        let answer = match stub {
            Ok(stub) => {
                let work = pin!(claim_and_settle(stub, &claim, limits, local, patience));
                unless_closed(&book, claim.name(), watch.over(work, &book.backend).await)
            }
            Err(closed) => Err(book.decorate(closed, Operation::Acquire, Some(claim.name()))),
        };
        end(watch, answer)
    };
    UnderWay::new(&shared, Vec::new(), watched).cancelling(asked)
}

/// Waits for the turn of the claim in the queue of this process, if there is one, and asks the server.
async fn claim_and_settle(
    stub: Stub,
    claim: &Claim,
    limits: Limits,
    local: Option<Arc<LocalQueues>>,
    patience: Patience,
) -> Result<Option<LockGuard>> {
    let book = Arc::clone(stub.book());
    let turn = match local {
        None => None,
        Some(local) => match local.turn(claim).await {
            Err(error) => return Err(book.decorate(error, Operation::Acquire, Some(claim.name()))),
            Ok(None) => return Ok(None),
            Ok(Some(Turn::Beside)) => None,
            Ok(Some(Turn::Claim(turn))) => Some(Arc::new(turn)),
            Ok(Some(Turn::Handed(turn, lock))) => {
                // After a close it would not be renewed, so it is released.
                book.check_open()?;
                match lock.take(&turn, claim.class(), limits) {
                    Some(guard) => return Ok(Some(guard)),
                    None => Some(turn),
                }
            }
        },
    };
    if let Some(turn) = &turn {
        claim.put_turn(Arc::clone(turn) as Arc<dyn PassOn>);
        turn.begin(claim, book.has_token_blocks());
    }
    stub.ask();
    let acquire = ask(&book, claim, patience);
    let answer = match &turn {
        Some(turn) => turn.pulse().over(acquire).await,
        None => acquire.await,
    };
    match (&turn, &answer) {
        (Some(turn), Err(error)) if tells_of_the_server(error) && !has_left_early(claim) => turn.scatter(),
        _ => (),
    }
    let settled = settle(stub, answer, limits, turn);
    if settled.is_err() {
        book.slow_down().await;
    }
    settled
}

/// Asks the server for a lock, and again while it is away, as far as the patience goes.
///
/// It asks for the same claim. So a server that has not forgotten the claim knows its place, or that it has the
/// lock, and there is one claim to release in the end. An earlier request may still arrive after that.
///
/// If the backend cannot go on with the claim, the request makes another one (`in_time.rs`).
async fn ask(book: &Book, claim: &Claim, mut patience: Patience) -> Result<Option<Grant>> {
    let clock = &book.clock;
    loop {
        let error = match book.backend.acquire(claim).await.and_then(|grant| in_time(clock, grant)) {
            // The wait ended, and nobody knows whether the lock is held.
            Ok(None) if !claim.has_answer() => return patience.end().map(|()| None),
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if claim.has_answer() {
            patience.begin_anew();
        }
        let (was_away, may_arrive) = (patience.reason().is_some(), !proves_nothing_done(&error));
        let heard = patience.hear(error, clock);
        // The error that is returned may be an earlier one, which says nothing of this request.
        if may_arrive && (was_away || heard.is_ok()) {
            claim.note_in_doubt();
        }
        heard?;
        if claim.has_ended_early() {
            // A server that ends one claim after the other is not asked without a pause.
            Box::pin(patience.pause(clock, pending())).await?;
            return patience.end_of_claim().map(|()| None);
        }
        claim.note_away(patience.reason());
        Box::pin(patience.pause(clock, claim.wait_over())).await?;
    }
}

/// A grant, unless its answer was under way for longer than the lease lasts: the lock is not held any more.
fn in_time(clock: &Clock, grant: Option<Grant>) -> Result<Option<Grant>> {
    if grant.as_ref().is_some_and(|grant| clock.has_passed(grant.deadline())) {
        let text = "the lock was granted, but the answer came after the lease had ended";
        return Err(Error::new(ErrorKind::Unreachable, text));
    }
    Ok(grant)
}

/// Acquires several locks at the same time, without waiting.
pub(crate) fn acquire_each(
    book: &Arc<Book>,
    claims: Vec<Claim>,
    limits: Limits,
) -> UnderWay<Vec<Result<Option<LockGuard>>>> {
    let watches: Vec<_> = claims.iter().map(|claim| book.telemetry.watch(claim)).collect();
    let stubs: Result<Vec<_>> = claims.iter().map(|claim| book.open(claim)).collect();
    let shared = Arc::clone(book);
    UnderWay::new(book, claims.clone(), async move {
        let stubs = match stubs {
            Ok(stubs) => stubs,
            Err(closed) => {
                let refused = |name| shared.decorate(closed.duplicate(), Operation::Acquire, Some(name));
                let refused = claims.iter().map(|claim| Err(refused(claim.name())));
                return refused.zip(watches).map(|(refused, watch)| end(watch, refused)).collect();
            }
        };
        stubs.iter().for_each(Stub::ask);
        let answers = shared.backend.acquire_each(&claims).await;
        let answers =
            answers.into_iter().map(|answer| answer.and_then(|grant| in_time(&shared.clock, grant)));
        let settled = stubs.into_iter().zip(answers).zip(watches);
        let answers: Vec<_> =
            settled.map(|((stub, answer), watch)| end(watch, settle(stub, answer, limits, None))).collect();
        if answers.iter().any(Result::is_err) {
            shared.slow_down().await;
        }
        answers
    })
}

/// The answer to an acquire. Without a guard it is that the client was closed, if it was: that may be the
/// reason.
fn unless_closed(
    book: &Book,
    name: &LockName,
    answer: Result<Option<LockGuard>>,
) -> Result<Option<LockGuard>> {
    match (answer, book.check_open()) {
        (Ok(None) | Err(_), Err(closed)) => Err(book.decorate(closed, Operation::Acquire, Some(name))),
        (answer, _) => answer,
    }
}

/// Ends the acquire, and returns its guard.
fn end(watch: Watch, answer: Result<Option<LockGuard>>) -> Result<Option<LockGuard>> {
    watch.end(answer.as_ref().map(|guard| guard.as_ref().map(LockGuard::token)));
    Ok(answer?.map(LockGuard::with_span))
}

/// Makes a guard of the answer to an acquire. There is no await in here: the guard gets the stub in one step.
fn settle(
    stub: Stub,
    answer: Result<Option<Grant>>,
    limits: Limits,
    turn: Option<Arc<ClaimTurn>>,
) -> Result<Option<LockGuard>> {
    let claim = stub.claim().clone();
    let error = match answer {
        Ok(Some(grant)) => {
            let is_granted = stub.granted();
            let open = stub.book().check_open();
            if open.is_err() || !is_granted {
                // The client was closed while it waited: the lock would not be renewed. Or the keeper
                // releases it, since nobody has driven this, and the answer goes nowhere.
                let answer = open.map(|()| None).map_err(|error| decorate(&stub, error));
                stub.release_in_background(true, Span::none());
                claim.pass_on();
                return answer;
            }
            return Ok(granted(stub, grant, limits, turn));
        }
        Ok(None) => None,
        Err(error) => Some(decorate(&stub, error)),
    };
    // It may have a place in a queue, or a copy of its request may still arrive and find the lock free.
    let leaves_nothing = !claim.may_be_queued() && claim.in_doubt_until().is_none();
    match &error {
        None if leaves_nothing => stub.disarm(),
        Some(error) if leaves_nothing && proves_nothing_done(error) => stub.disarm(),
        error => stub.release_in_background(error.is_none(), Span::none()),
    }
    claim.pass_on();
    error.map_or(Ok(None), Err)
}

/// Makes a guard of a grant. `None`: its caller has left, and the next task has the lock, with its turn.
fn granted(stub: Stub, grant: Grant, limits: Limits, turn: Option<Arc<ClaimTurn>>) -> Option<LockGuard> {
    let stub = match &turn {
        Some(turn) if stub.claim().has_no_caller() => to_next_claimant(turn, &grant, stub)?,
        _ => stub,
    };
    let slice = turn.and_then(|turn| Slice::new(turn, stub.book(), &grant));
    let class = stub.claim().class();
    Some(LockGuard::new(stub, grant, class, limits, slice))
}

fn decorate(stub: &Stub, error: Error) -> Error {
    stub.book().decorate(error, Operation::Acquire, Some(stub.claim().name()))
}

/// Whether an error may be that of all who ask this server now.
fn tells_of_the_server(error: &Error) -> bool {
    // In a grace period the next one asks for all, and waits for its end.
    let others = [
        ErrorKind::TimedOut,
        ErrorKind::Cancelled,
        ErrorKind::Closed,
        ErrorKind::GracePeriod,
        ErrorKind::KindClash,
    ];
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
