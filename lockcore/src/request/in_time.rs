//! The end of a request whose time is over, whether there is an answer or not.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Checked;
use super::operation::Acquiring;
use crate::background::Book;
use crate::contract::{BACKEND_ANSWER, FIRST_ANSWER};
use crate::{Clock, Error, ErrorKind, LockGuard, LockName, Operation, Result, Wait};

/// An acquire, until a little after the end of its wait. `None`: the lock is held by another.
///
/// Whatever is still under way when this is dropped goes on in the background.
pub(super) struct InTime {
    work: Acquiring,
    checked: Checked,
    /// Fires after the end of the wait, in case that the backend has not answered.
    end: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl InTime {
    pub(super) fn new(checked: Checked) -> Self {
        Self { work: checked.begin(), checked, end: None }
    }

    #[cfg(test)]
    pub(super) fn claim(&self) -> Option<&crate::Claim> {
        self.work.claim()
    }

    /// The error that the lock is held by another.
    pub(super) fn timed_out(&self) -> Error {
        let Checked { book, choices, name, .. } = &self.checked;
        timed_out(book, choices.wait, Some(name))
    }
}

impl Future for InTime {
    type Output = Result<Option<LockGuard>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { work, checked, end } = &mut *self;
        while let Poll::Ready(answer) = Pin::new(&mut *work).poll(cx) {
            match answer {
                // The backend cannot go on with this claim. Another one waits for the rest of the time.
                Err(error) if error.away_since().is_some() && !checked.is_late() => {
                    (*work, *end) = (checked.begin_after(&error), None);
                }
                answer => return Poll::Ready(answer),
            }
        }
        let Some(claim) = work.claim().filter(|claim| matches!(claim.wait(), Wait::Until(_))) else {
            return Poll::Pending;
        };
        let end = end.get_or_insert_with(|| {
            let claim = claim.clone();
            Box::pin(async move { claim.end_of_wait().await })
        });
        ready!(end.as_mut().poll(cx));
        // If its place is kept, the wait for others goes on.
        Poll::Ready(if claim.keeps_place() {
            Ok(None)
        } else {
            let Checked { book, choices, name, .. } = &*checked;
            let unanswered = || unanswered(book, choices.wait, Some(name));
            let away = |error| book.decorate(error, Operation::Acquire, Some(name));
            Err(claim.obstacle().map_or_else(unanswered, away))
        })
    }
}

/// Waits for work that does not know the end of this wait, until that end and a moment longer. The wait
/// covers the first answer of the server.
pub(super) async fn within<T>(
    clock: &Clock,
    wait: Wait,
    work: impl Future<Output = Result<Option<T>>>,
) -> Result<Option<T>> {
    let Wait::Until(end) = wait else { return work.await };
    let end = end.max(clock.now().after(FIRST_ANSWER));
    tokio::select! {
        biased;
        answer = work => answer,
        () = clock.sleep_until(end.after(BACKEND_ANSWER)) => Ok(None),
    }
}

pub(super) fn timed_out(book: &Book, wait: Option<Duration>, name: Option<&LockName>) -> Error {
    end_of_wait("still held by another after a wait of", book, wait, name)
}

/// The backend has given no reason.
pub(super) fn unanswered(book: &Book, wait: Option<Duration>, name: Option<&LockName>) -> Error {
    end_of_wait("the backend has no answer after a wait of", book, wait, name)
}

fn end_of_wait(what: &str, book: &Book, wait: Option<Duration>, name: Option<&LockName>) -> Error {
    let waited = humantime::format_duration(wait.unwrap_or_default());
    let error = Error::new(ErrorKind::TimedOut, format!("{what} {waited}"));
    book.decorate(error, Operation::Acquire, name)
}
