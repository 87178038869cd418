//! The release of one claim, on the runtime of its caller.

use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use super::releases::{AcquireStatus, Releases};
use crate::system::poll_once;
use crate::telemetry::released;
use crate::{Claim, Released, Result};

/// The release of one claim. Dropping it while the release is open hands the claim to the keeper.
#[derive(Debug)]
#[must_use]
pub(crate) struct CallerRelease {
    releases: Arc<Releases>,
    claim: Claim,
    outcome: AcquireStatus,
    /// Where its outcome is recorded.
    span: Span,
    /// Its number on the list of releases under way, once it is there.
    id: Option<u64>,
    /// Nothing is left for the keeper: the server has confirmed the release, or an acquire that is under way
    /// releases its claim itself.
    done: bool,
}

impl CallerRelease {
    pub(super) fn new(releases: &Arc<Releases>, claim: Claim, outcome: AcquireStatus) -> Self {
        let span = Span::none();
        Self { releases: Arc::clone(releases), claim, outcome, span, id: None, done: false }
    }

    /// The release of an operation that goes on in a task, since its caller has left. It releases its claim
    /// itself, or hands the lock on with the turn. This only has it on the list: if its runtime is not
    /// driven, the keeper releases the claim.
    pub(super) fn of_moved(releases: &Arc<Releases>, claim: &Claim, outcome: AcquireStatus) -> Self {
        let mut release = Self::new(releases, claim.clone(), outcome);
        release.id = Some(releases.enter(claim, release.outcome, false));
        release.done = true;
        release
    }

    /// Its task runs.
    pub(super) fn begun(&self) {
        if let Some(id) = self.id {
            self.releases.begun(id);
        }
    }

    /// Sets its span.
    pub(super) fn within(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// Begins on the caller's runtime: requests on the connection of the acquire keep their order. Without a
    /// runtime the keeper does it.
    pub(super) fn start(mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        self.id = Some(self.releases.enter(&self.claim, self.outcome, false));
        let span = self.span.clone();
        let work = async move {
            self.begun();
            let answer = self.releases.backend.release(&self.claim).await;
            released(&self.span, &answer);
            match answer {
                Ok(Released::NotHeld) if self.outcome == AcquireStatus::Unanswered => (),
                Ok(_) => self.done(),
                Err(error) => self.releases.failed(&self.claim, &error),
            }
        };
        drop(runtime.spawn(work.instrument(span)));
    }

    /// Sends the release and waits for the answer. It enters the list if the answer does not come at once.
    ///
    /// `was_held`: the claim held the lock when the release began. If the keeper has sent the release as
    /// well, "not held" is a loss only if the keeper was told so, too.
    pub(super) async fn ask(self, was_held: bool) -> Result<Released> {
        let span = self.span.clone();
        self.ask_server(was_held).instrument(span).await
    }

    async fn ask_server(mut self, was_held: bool) -> Result<Released> {
        let releases = Arc::clone(&self.releases);
        let claim = self.claim.clone();
        let mut asking = releases.backend.release(&claim);
        let answer = match poll_once(&mut asking).await {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                let (sender, keepers) = oneshot::channel();
                let id = releases.enter(&claim, self.outcome, true);
                self.id = Some(id);
                releases.tell_answer(id, sender);
                match asking.await {
                    // If the keeper has sent the release as well, one of the two has found the claim. One of
                    // the keeper's whose answer was lost may have been it.
                    Ok(Released::NotHeld) if was_held && releases.has_taken(id) => {
                        Ok(keepers.await.unwrap_or(Released::NotHeld))
                    }
                    answer => answer,
                }
            }
        };
        released(&self.span, &answer);
        match &answer {
            Ok(_) => self.done(),
            Err(error) => releases.failed(&claim, error),
        }
        match answer {
            // The lock was held until the release began. A lock that was lost before must not be called
            // released.
            Ok(Released::InDoubt) if was_held => Ok(Released::Released),
            Ok(Released::InDoubt) => Ok(Released::NotHeld),
            answer => answer,
        }
    }

    fn done(mut self) {
        self.done = true;
        self.releases.watch_for_copies(&self.claim);
        self.claim.turn().pass_on();
    }
}

impl Drop for CallerRelease {
    fn drop(&mut self) {
        match (self.done, self.id) {
            (true, Some(id)) => self.releases.leave(id),
            (true, None) => (),
            (false, id) => {
                let id = id.unwrap_or_else(|| self.releases.enter(&self.claim, self.outcome, true));
                self.releases.take_over(id);
                self.claim.turn().pass_on();
            }
        }
    }
}
