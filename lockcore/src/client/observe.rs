//! A stream of leaders.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;

use crate::backend::closed_for;
use crate::background::Book;
use crate::{Error, ErrorKind, FencingToken, Holder, LockName, Operation, Result};

/// How often an observer sends a request.
const EVERY: Duration = Duration::from_secs(1);
/// The shortest pause between two requests, so that an observer does not occupy its thread.
const SHORTEST: Duration = Duration::from_millis(1);

/// The leader, as the server knows it.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The fencing token of this term.
    pub token: FencingToken,
    /// A human-readable text that names the leader: the label of its campaign.
    pub label: String,
}

impl From<Holder> for Leader {
    fn from(holder: Holder) -> Self {
        Self { token: holder.token, label: holder.label }
    }
}

/// A stream of leaders: first the current one, then every observed change. `None`: there is no leader. While
/// that is unknown, since the server may have forgotten the leader, the item is an error of kind
/// [`GracePeriod`](crate::ErrorKind::GracePeriod).
///
/// While it is polled, it sends a request once a second, or at the interval of [`every`](Self::every). So it
/// can miss shorter changes, and an item may be outdated: let the resource decide by the token, not by this
/// stream. An error does not end the stream; the next poll sends another request, after the same pause.
#[must_use = "nothing is asked until the stream is polled"]
pub struct Observation {
    book: Arc<Book>,
    name: Result<LockName>,
    every: Duration,
    asked: bool,
    /// The last item, if there was one.
    was_returned: bool,
    seen: Option<Leader>,
    asking: Option<Asking>,
}

type Asking = Pin<Box<dyn Future<Output = Result<Option<Leader>>> + Send>>;

impl Observation {
    pub(crate) fn new(book: &Arc<Book>, name: Result<LockName>) -> Self {
        Self {
            book: Arc::clone(book),
            name,
            every: EVERY,
            asked: false,
            was_returned: false,
            seen: None,
            asking: None,
        }
    }

    /// Sets the interval of the requests: a millisecond at least.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(SHORTEST);
        self
    }

    /// Waits for the next change. The first call returns the current state.
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not returned is seen by the next call.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        std::future::poll_fn(|cx| self.poll_change(cx)).await
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Leader>>> {
        loop {
            let mut asking = self.asking.take().unwrap_or_else(|| self.ask());
            let Poll::Ready(answer) = asking.as_mut().poll(cx) else {
                self.asking = Some(asking);
                return Poll::Pending;
            };
            match answer {
                Ok(leader) if self.was_returned && self.seen == leader => (),
                Ok(leader) => {
                    self.was_returned = true;
                    self.seen.clone_from(&leader);
                    return Poll::Ready(Ok(leader));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends one request, after a pause unless it is the first.
    fn ask(&mut self) -> Asking {
        let book = Arc::clone(&self.book);
        let name = match &self.name {
            Ok(name) => Ok(name.clone()),
            Err(error) => Err(error.duplicate()),
        };
        let pause = if self.asked { self.every } else { Duration::ZERO };
        self.asked = true;
        Box::pin(async move {
            if !pause.is_zero() {
                book.clock.sleep(pause).await;
            }
            let name = name.map_err(|error| book.decorate(error, Operation::Inspect, None))?;
            let decorate = |error: Error| book.decorate(error, Operation::Inspect, Some(&name));
            let status = book.backend.inspect(&name).await.map_err(decorate)?;
            // Of several holders, readers for instance, the newest.
            match (status.holders.into_iter().max_by_key(|holder| holder.token), status.unknown_for) {
                (None, Some(left)) => Err(decorate(Error::new(ErrorKind::GracePeriod, closed_for(left)))),
                (leader, _) => Ok(leader.map(Leader::from)),
            }
        })
    }
}

impl Stream for Observation {
    type Item = Result<Option<Leader>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_change(cx).map(Some)
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("name", &self.name)
            .field("every", &self.every)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}
