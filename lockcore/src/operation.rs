//! Operations that run to their end, whatever becomes of the caller.
//!
//! A caller's future can be dropped at any await. The operation must not stop there: a request that is on its way is
//! executed by the server all the same. So the operation is polled within the caller's future while the caller waits,
//! and moves to a task of its own when the caller goes away: no backend future is ever dropped half-way. That costs
//! nothing in the usual case. What it then comes to, a guard for instance, is dropped by that task, which gives the lock
//! back. When the runtime itself goes away, the armed claim goes to the keeper.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Shared;
use crate::keeper::{Armed, Outcome};
use crate::lease::Limits;
use crate::local::{LocalQueues, Right, Turn};
use crate::{Claim, Error, ErrorKind, Grant, LockGuard, Moment, Operation, Released, Result};

/// The longest that a release may take before the keeper takes over.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// An operation under way. Dropping it lets it go on without us, with its claim cancelled.
#[must_use = "an operation goes on in the background when it is dropped"]
pub(crate) struct UnderWay<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// The claim to cancel, where that can make the operation end sooner.
    claim: Option<Claim>,
}

impl<T: Send + 'static> UnderWay<T> {
    fn new(claim: Option<Claim>, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), claim }
    }

    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }
}

impl<T: Send + 'static> Future for UnderWay<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("not polled after its end");
        let output = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if let Some(claim) = &self.claim {
            claim.cancel();
        }
        // Without a runtime the work is dropped here, and the armed claim in it goes to the keeper.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move { drop(work.await) }));
        }
    }
}

/// An acquire under way.
pub(crate) type Acquiring = UnderWay<Result<Option<LockGuard>>>;

/// Acquires a lock. `None`: the wait ended.
pub(crate) fn acquire(
    shared: Arc<Shared>,
    claim: Claim,
    limits: Limits,
    local: Option<Arc<LocalQueues>>,
) -> Acquiring {
    UnderWay::new(Some(claim.clone()), async move {
        let mut right = None;
        if let Some(local) = local {
            right = match local.turn(&claim).await {
                None => return Ok(None),
                Some(Turn::Claim(right)) => Some(right),
                Some(Turn::Baton(baton)) => match baton.take(limits) {
                    Ok(guard) => return Ok(Some(guard)),
                    Err(right) => right,
                },
            };
        }
        let armed = Armed::new(shared, claim);
        let answer = armed.shared().backend.acquire(armed.claim()).await;
        settle(armed, answer, limits, right)
    })
}

/// Acquires several locks at the same time, without waiting.
pub(crate) fn acquire_each(
    shared: &Arc<Shared>,
    claims: Vec<Claim>,
    limits: Limits,
) -> UnderWay<Vec<Result<Option<LockGuard>>>> {
    let armed: Vec<_> = claims.iter().map(|claim| Armed::new(Arc::clone(shared), claim.clone())).collect();
    let backend = Arc::clone(&shared.backend);
    UnderWay::new(None, async move {
        let answers = backend.acquire_each(&claims).await;
        let settled = armed.into_iter().zip(answers);
        settled.map(|(armed, answer)| settle(armed, answer, limits, None)).collect()
    })
}

/// What the answer to an acquire comes to. There is no await in here: the armed claim and the guard change places in one
/// step.
fn settle(
    armed: Armed,
    answer: Result<Option<Grant>>,
    limits: Limits,
    right: Option<Right>,
) -> Result<Option<LockGuard>> {
    let error = match answer {
        Ok(Some(grant)) => {
            if !grant.deadline().has_passed() {
                let guard = LockGuard::new(armed.shared(), grant, limits, right.and_then(Right::pass));
                armed.disarm();
                return Ok(Some(guard));
            }
            // The answer was under way for longer than the lease lasts: it grants nothing any more.
            let text = "the lock was granted, but the answer came after the lease had ended";
            decorate(&armed, Error::new(ErrorKind::Unreachable, text))
        }
        Ok(None) if armed.claim().may_be_queued() => {
            armed.give_up(Outcome::Answered);
            return Ok(None);
        }
        Ok(None) => {
            armed.disarm();
            return Ok(None);
        }
        Err(error) => decorate(&armed, error),
    };
    if proves_nothing_done(&error) {
        armed.disarm();
    } else {
        armed.give_up(Outcome::Unanswered);
    }
    Err(error)
}

fn decorate(armed: &Armed, error: Error) -> Error {
    armed.shared().decorate(error, Operation::Acquire, Some(armed.claim().name()))
}

/// Whether this error of an acquire proves that the server has not acted on the claim.
fn proves_nothing_done(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::KindClash | ErrorKind::Closed
    )
}

/// Turns a writer into a reader. `deadline` is the end of belief; nothing renews the lease in between.
///
/// Until the answer is here, the server may have either of the two on record. So both claims are armed.
pub(crate) async fn downgrade(
    writer: Armed,
    grant: Grant,
    limits: Limits,
    deadline: Moment,
) -> Result<LockGuard> {
    let reader = Armed::new(Arc::clone(writer.shared()), grant.claim().downgraded());
    UnderWay::new(None, async move {
        let error = match writer.shared().backend.downgrade(&grant).await {
            Ok(grant) if !deadline.has_passed() => {
                let guard = LockGuard::new(reader.shared(), grant.believed_until(deadline), limits, None);
                writer.disarm();
                reader.disarm();
                return Ok(guard);
            }
            Ok(_) => Error::new(ErrorKind::Lost, "the lock was lost during the downgrade"),
            Err(error) => error,
        };
        let give_up = if deadline.has_passed() { Armed::give_up_lost } else { Armed::give_up };
        give_up(reader, Outcome::Unanswered);
        give_up(writer, Outcome::Unanswered);
        Err(error)
    })
    .await
}

/// Releases a claim, and lets the keeper go on if that fails.
pub(crate) async fn release(armed: Armed) -> Result<Released> {
    let mut work = UnderWay::new(None, async move {
        let answer = armed.shared().backend.release(armed.claim()).await;
        // On an error the armed claim is dropped here, which hands it to the keeper.
        if answer.is_ok() {
            armed.disarm();
        }
        answer
    });
    // The first look is free of a timer: a backend in memory needs none.
    if let Poll::Ready(answer) = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx))).await {
        return answer;
    }
    tokio::time::timeout(RELEASE_LIMIT, work).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::UnknownOutcome, "no answer in time; it goes on in the background"))
    })
}
