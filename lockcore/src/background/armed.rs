//! Claims that are released unless a guard takes over, or the server has said that they hold nothing.

use std::sync::Arc;

use tracing::Span;

use super::{AcquireStatus, Background, CallerRelease};
use crate::lease::Left;
use crate::{Claim, Released, Result};

/// A claim that is released unless a guard takes over, or the server has said that it holds nothing.
///
/// It is made before the first byte of an acquire is sent. If the task that runs the operation is dropped
/// half-way, for example when its runtime shuts down, this is dropped with it and hands the claim to the
/// keeper.
#[derive(Debug)]
#[must_use]
pub(crate) struct Armed {
    claim: Option<(Arc<Background>, Claim)>,
    /// The span of its release.
    span: Span,
}

impl Armed {
    pub(crate) fn new(background: Arc<Background>, claim: Claim) -> Self {
        Self { claim: Some((background, claim)), span: Span::none() }
    }

    /// Sets the span of its release.
    pub(crate) fn within(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    fn parts(&self) -> (&Arc<Background>, &Claim) {
        let (background, claim) = self.claim.as_ref().expect("armed until it is consumed");
        (background, claim)
    }

    pub(crate) fn background(&self) -> &Arc<Background> {
        self.parts().0
    }

    pub(crate) fn claim(&self) -> &Claim {
        self.parts().1
    }

    /// Cancels the release: there is proof that the claim holds nothing, or its guard has taken over.
    pub(crate) fn disarm(mut self) {
        self.claim = None;
    }

    fn caller_release(&mut self, outcome: AcquireStatus) -> Option<CallerRelease> {
        let (background, claim) = self.claim.take()?;
        let release = CallerRelease::new(&background.releases, claim, outcome);
        Some(release.within(std::mem::replace(&mut self.span, Span::none())))
    }

    /// Releases the claim in the background: on the caller's runtime, and by the keeper if that fails.
    pub(crate) fn release_in_background(mut self, outcome: AcquireStatus) {
        if let Some(release) = self.caller_release(outcome) {
            release.start();
        }
    }

    /// Releases the claim of a lost lock. With a lock delay, a loss is treated like a crash, since requests
    /// of the holder may still be on their way: the lock is free only after the delay.
    pub(crate) fn release_lost(mut self, outcome: AcquireStatus) {
        let lock_delay = self.claim().lock_delay();
        if lock_delay.is_zero() {
            return self.release_in_background(outcome);
        }
        let Some((background, claim)) = self.claim.take() else { return };
        // The next task waits for the end of the delay at the server.
        claim.turn().pass_on();
        background.leases.release_after(lock_delay, claim, outcome);
    }

    /// Releases the claim of a hold that has ended. `left`: the rest of its lease; `None` if the lock was
    /// lost.
    pub(crate) fn release_ended(self, left: Option<Left>) {
        match left {
            Some(_) => self.release_in_background(AcquireStatus::Answered),
            None => self.release_lost(AcquireStatus::Answered),
        }
    }

    /// Releases the claim and waits for the answer. On an error the keeper repeats the release.
    ///
    /// `was_held`: the lock was not lost before.
    pub(crate) async fn release(mut self, was_held: bool) -> Result<Released> {
        match self.caller_release(AcquireStatus::Answered) {
            Some(release) => release.ask(was_held).await,
            None => Ok(Released::NotHeld),
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // Dropping it hands it to the keeper.
        drop(self.caller_release(AcquireStatus::Unanswered));
    }
}
