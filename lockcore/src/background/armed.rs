//! Claims that are given up unless a guard takes over, or the server has said that they hold nothing.

use std::sync::Arc;

use tracing::Span;

use super::{Background, GivingUp, Outcome};
use crate::lease::{Left, PassOn};
use crate::{Claim, Released, Result};

/// A claim that is given up unless a guard takes over, or the server has said that it holds nothing.
///
/// It is armed before the first byte of an acquire is sent. If the task that runs the operation is dropped half-way,
/// as the shutdown of a runtime does, dropping this hands the claim to the keeper.
#[derive(Debug)]
#[must_use]
pub(crate) struct Armed {
    claim: Option<(Arc<Background>, Claim)>,
    /// Told when the claim has been given up, or need not be.
    then: Option<Arc<dyn PassOn>>,
    /// The span of giving it up.
    span: Span,
}

impl Armed {
    pub(crate) fn new(background: Arc<Background>, claim: Claim) -> Self {
        Self { claim: Some((background, claim)), then: None, span: Span::none() }
    }

    /// Whom to tell when the claim has been given up, or need not be.
    pub(crate) fn then(mut self, then: Option<Arc<dyn PassOn>>) -> Self {
        self.then = then;
        self
    }

    /// Gives it up within this span.
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

    /// There is proof that the claim holds nothing, or its guard has taken over.
    pub(crate) fn disarm(mut self) {
        self.claim = None;
    }

    fn giving_up(&mut self, outcome: Outcome) -> Option<GivingUp> {
        let (background, claim) = self.claim.take()?;
        let giving_up = GivingUp::new(&background.releases, claim, outcome, self.then.take());
        Some(giving_up.within(std::mem::replace(&mut self.span, Span::none())))
    }

    /// Gives the claim up in the background: on the caller's runtime, and by the keeper if that fails.
    pub(crate) fn give_up(mut self, outcome: Outcome) {
        if let Some(giving_up) = self.giving_up(outcome) {
            giving_up.start();
        }
    }

    /// Gives up the claim of a lost lock. With a lock delay, a loss is treated like a crash, since requests of the
    /// holder may still be on their way: the lock is free only after the delay.
    pub(crate) fn give_up_lost(mut self, outcome: Outcome) {
        let lock_delay = self.claim().lock_delay();
        if lock_delay.is_zero() {
            return self.give_up(outcome);
        }
        let Some((background, claim)) = self.claim.take() else { return };
        background.leases.give_up_after(lock_delay, claim, outcome);
    }

    /// Gives up the claim of a hold that has ended. `left`: the rest of its lease; `None` if the lock was lost.
    pub(crate) fn give_up_held(self, left: Option<Left>) {
        match left {
            Some(_) => self.give_up(Outcome::Answered),
            None => self.give_up_lost(Outcome::Answered),
        }
    }

    /// Gives the claim up and waits for the answer. On an error the keeper repeats the release.
    ///
    /// `was_held`: the lock was not lost before.
    pub(crate) async fn release(mut self, was_held: bool) -> Result<Released> {
        match self.giving_up(Outcome::Answered) {
            Some(giving_up) => giving_up.ask(was_held).await,
            None => Ok(Released::NotHeld),
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        // Dropping it hands it to the keeper.
        drop(self.giving_up(Outcome::Unanswered));
        if let Some(then) = self.then.take() {
            then.pass_on();
        }
    }
}
