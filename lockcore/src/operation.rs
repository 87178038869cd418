//! Operations that run to their end, whatever becomes of the caller.
//!
//! A caller's future can be dropped at any await. The operation must not stop there: a request that is on its way is
//! executed by the server all the same. So the backend's future is polled within the caller's while the caller
//! waits, and moves to a task of its own when the caller goes away: no backend future is ever dropped half-way. That
//! costs nothing in the usual case. When the runtime itself goes away, the armed claim goes to the keeper.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Shared;
use crate::keeper::{Armed, Outcome};
use crate::{Claim, Error, ErrorKind, Grant, LockGuard, Moment, Released, Result, Wait};

/// How long after the end of the wait the backend's own answer is waited for. It knows more than "timed out": that
/// the server cannot be reached, for one.
const GRACE: Duration = Duration::from_millis(20);

/// The longest that a release may take before the keeper takes over.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// An operation under way: the future, and what must be cleaned up if its answer reaches nobody.
#[must_use]
struct UnderWay<T: Answer> {
    work: Option<Work<T>>,
    armed: Option<Armed>,
    claim: Claim,
}

/// What an answer says about the need to clean up.
trait Answer: Send + 'static {
    /// Settles the armed claim when nobody is there to take the answer.
    fn settle(answer: &Result<Self>, claim: &Claim, armed: Armed)
    where
        Self: Sized;
}

impl Answer for Option<Grant> {
    fn settle(answer: &Result<Self>, claim: &Claim, armed: Armed) {
        match answer {
            Ok(None) if !claim.may_be_queued() => armed.disarm(),
            Ok(_) => armed.give_up(Outcome::Answered),
            Err(error) if proves_nothing_done(error) => armed.disarm(),
            Err(_) => armed.give_up(Outcome::Unanswered),
        }
    }
}

impl Answer for Released {
    fn settle(answer: &Result<Self>, _: &Claim, armed: Armed) {
        // On an error the armed claim is dropped here, which hands it to the keeper.
        if answer.is_ok() {
            armed.disarm();
        }
    }
}

/// Whether this error of an acquire proves that the server has not acted on the claim.
fn proves_nothing_done(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::KindClash | ErrorKind::Closed
    )
}

impl<T: Answer> Future for UnderWay<T> {
    type Output = (Result<T>, Armed);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.work.as_mut().expect("not polled after its end");
        let answer = std::task::ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready((answer, self.armed.take().expect("armed until the end")))
    }
}

impl<T: Answer> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let (Some(work), Some(armed)) = (self.work.take(), self.armed.take()) else { return };
        let claim = self.claim.clone();
        claim.cancel();
        // Without a runtime, both are dropped here: the armed claim goes to the keeper.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move { T::settle(&work.await, &claim, armed) }));
        }
    }
}

/// Acquires a lock. `None`: the wait ended.
pub(crate) async fn acquire(shared: &Arc<Shared>, claim: Claim) -> Result<Option<LockGuard>> {
    let under_way = UnderWay {
        work: Some(Box::pin({
            let (shared, claim) = (Arc::clone(shared), claim.clone());
            async move { shared.backend.acquire(&claim).await }
        })),
        armed: Some(Armed::new(shared, &claim)),
        claim: claim.clone(),
    };
    let (answer, armed) = match claim.wait() {
        Wait::Until(end) => {
            tokio::select! {
                biased;
                done = under_way => done,
                () = end.after(GRACE).sleep() => return Ok(None),
            }
        }
        Wait::No | Wait::Forever => under_way.await,
    };
    // From here to the guard there is no await: the armed claim and the guard change places in one step.
    match answer {
        Ok(Some(grant)) => {
            let now = Moment::now();
            if now >= grant.deadline() {
                // The answer was under way for longer than the lease lasts: it grants nothing any more.
                armed.give_up(Outcome::Answered);
                return Err(Error::new(
                    ErrorKind::Unreachable,
                    "the lock was granted, but the answer came after the lease had ended",
                ));
            }
            let guard = LockGuard::new(shared, grant, now);
            armed.disarm();
            Ok(Some(guard))
        }
        refused => {
            Answer::settle(&refused, &claim, armed);
            refused.map(|_| None)
        }
    }
}

/// Releases a claim, and lets the keeper go on if that fails.
pub(crate) async fn release(shared: &Arc<Shared>, armed: Armed, claim: &Claim) -> Result<Released> {
    let under_way = UnderWay {
        work: Some(Box::pin({
            let (shared, claim) = (Arc::clone(shared), claim.clone());
            async move { shared.backend.release(&claim).await }
        })),
        armed: Some(armed),
        claim: claim.clone(),
    };
    let Ok((answer, armed)) = tokio::time::timeout(RELEASE_LIMIT, under_way).await else {
        return Err(Error::new(ErrorKind::UnknownOutcome, "no answer in time; it goes on in the background"));
    };
    if answer.is_ok() {
        armed.disarm();
    }
    answer
}
