//! Operations that run to their end, even if their callers are dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::book::Book;
use crate::Claim;
use crate::life::Act;

/// An operation under way. When it is dropped, it goes on in the background with its claim cancelled,
/// unless other tasks wait behind that claim.
///
/// A caller's future can be dropped at any await. The operation must not stop there: a request that is on its
/// way is executed by the server all the same. So the operation is polled within the caller's future while
/// the caller waits, and moves to a task of its own when the caller goes away: no backend future is ever
/// dropped half-way. That costs nothing in the usual case. That task drops the result, a guard for instance,
/// which releases the lock. When the runtime ends, the claim goes to the keeper; when it is not driven
/// any more, the keeper releases the claim after a tenth of a second.
#[must_use = "an operation goes on in the background when it is dropped"]
pub(crate) struct UnderWay<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// The claim to cancel, where that can make the operation end sooner.
    claim: Option<Claim>,
    /// More claims, which are released if the operation does not go on.
    others: Vec<Claim>,
    book: Arc<Book>,
}

impl<T: Send + 'static> UnderWay<T> {
    pub(crate) fn new(
        book: &Arc<Book>,
        others: Vec<Claim>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self { work: Some(Box::pin(work)), claim: None, others, book: Arc::clone(book) }
    }

    /// The same, with a claim that is cancelled when the caller goes away.
    pub(crate) fn cancelling(mut self, claim: Claim) -> Self {
        self.claim = Some(claim);
        self
    }

    pub(crate) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// How many bytes its future takes.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.work.as_deref().map_or(0, size_of_val)
    }
}

impl<T: Send + 'static> Future for UnderWay<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out: work that panics is not polled again, and is not moved to a task.
        let mut work = self.work.take().expect("not polled after its end");
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if let Some(claim) = &self.claim {
            claim.abandon();
        }
        // Without a runtime the work is dropped here, and the keeper has the stub in it.
        if let Ok(runtime) = Handle::try_current() {
            let claims: Vec<_> = self.claim.take().into_iter().chain(self.others.drain(..)).collect();
            for claim in &claims {
                self.book.step(claim, Act::Unattended { begun: false });
            }
            drop(runtime.spawn(async move {
                for claim in &claims {
                    claim.life(|life| life.on(&|| claim.clock().now(), Act::Unattended { begun: true }));
                }
                drop(work.await);
            }));
        }
    }
}
