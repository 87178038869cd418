//! The release of one claim, on the runtime of its caller.

use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use super::releases::{AcquireStatus, Releases};
use crate::lease::PassOn;
use crate::system::poll_once;
use crate::telemetry::released;
use crate::{Claim, Released, Result};

/// The release of one claim. Dropping it before the server has confirmed the release hands the claim to the
/// keeper.
#[derive(Debug)]
#[must_use]
pub(crate) struct CallerRelease {
    releases: Arc<Releases>,
    claim: Claim,
    outcome: AcquireStatus,
    /// Gets the claim turn when the claim has been released, or the keeper has taken it over.
    then: Option<Arc<dyn PassOn>>,
    /// Where its outcome is recorded.
    span: Span,
    /// Its number on the list of releases under way, once it is there.
    id: Option<u64>,
    done: bool,
}

impl CallerRelease {
    pub(super) fn new(
        releases: &Arc<Releases>,
        claim: Claim,
        outcome: AcquireStatus,
        then: Option<Arc<dyn PassOn>>,
    ) -> Self {
        let span = Span::none();
        Self { releases: Arc::clone(releases), claim, outcome, then, span, id: None, done: false }
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
        self.id = Some(self.releases.enter(&self.claim, self.outcome, false, self.then.clone()));
        let span = self.span.clone();
        let work = async move {
            if let Some(id) = self.id {
                self.releases.begun(id);
            }
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
                let id = releases.enter(&claim, self.outcome, true, self.then.clone());
                self.id = Some(id);
                releases.tell_answer(id, sender);
                match asking.await {
                    // If the keeper has sent the release as well, one of the two has found the claim.
                    Ok(Released::NotHeld) if was_held && releases.has_taken(id) => {
                        let keepers = keepers.await;
                        Ok(if keepers == Ok(Released::Released) {
                            Released::Released
                        } else {
                            Released::NotHeld
                        })
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
    }
}

impl Drop for CallerRelease {
    fn drop(&mut self) {
        match (self.done, self.id) {
            (true, Some(id)) => self.releases.leave(id),
            (true, None) => (),
            (false, id) => {
                let id = id.unwrap_or_else(|| self.releases.enter(&self.claim, self.outcome, true, None));
                self.releases.take_over(id);
            }
        }
        if let Some(then) = self.then.take() {
            then.pass_on();
        }
    }
}

/// An acquire that goes on in a task, since its caller has left. It releases its claim itself. If its runtime
/// is not driven, the keeper does.
#[derive(Debug)]
pub(super) struct MovedAcquire {
    releases: Arc<Releases>,
    id: u64,
}

impl MovedAcquire {
    pub(super) fn new(releases: &Arc<Releases>, claim: &Claim, then: Option<Arc<dyn PassOn>>) -> Self {
        let id = releases.enter(claim, AcquireStatus::Unanswered, false, then);
        Self { releases: Arc::clone(releases), id }
    }

    pub(super) fn begun(&self) {
        self.releases.begun(self.id);
    }
}

impl Drop for MovedAcquire {
    fn drop(&mut self) {
        self.releases.leave(self.id);
    }
}
