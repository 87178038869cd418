//! One acquire, as it is seen from outside.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use tracing::Span;

use super::series::ClassSeries;
use super::{LockEvent, Since, Telemetry, spans};
use crate::telemetry::outcome::AcquireOutcome;
use crate::{Claim, Error, ErrorKind, FencingToken, Result, Wait};

/// Watches an acquire: how long it takes, whether it has to wait, and what becomes of it. Dropping it is an
/// outcome, too.
#[must_use]
pub(crate) struct Watch {
    telemetry: Arc<Telemetry>,
    claim: Claim,
    since: Since,
    /// The span of the wait, once there is one. It is dropped before the one around it.
    waits: Option<Span>,
    span: Span,
    outcome: AcquireOutcome,
    token: Option<FencingToken>,
}

impl Telemetry {
    /// Watches one acquire, from now until its end.
    pub(crate) fn watch(self: &Arc<Self>, claim: &Claim) -> Watch {
        Watch::new(self, claim)
    }
}

impl Watch {
    fn new(telemetry: &Arc<Telemetry>, claim: &Claim) -> Self {
        Self {
            since: Since::now(claim.clock()),
            span: spans::acquire(telemetry, claim),
            telemetry: Arc::clone(telemetry),
            claim: claim.clone(),
            waits: None,
            outcome: AcquireOutcome::Cancelled,
            token: None,
        }
    }

    /// Does the work of the acquire within its span, and sees when it begins to wait.
    pub(crate) async fn over<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = self.waits.as_ref().unwrap_or(&self.span).in_scope(|| work.as_mut().poll(cx));
            if polled.is_pending() && self.waits.is_none() && self.claim.is_waiting() {
                self.begin_to_wait();
            }
            polled
        })
        .await
    }

    fn series(&self) -> &ClassSeries {
        self.telemetry.series.of(self.claim.class())
    }

    fn begin_to_wait(&mut self) {
        self.waits = Some(spans::wait(&self.telemetry, &self.claim, &self.span));
        self.series().wait_begins();
        self.telemetry
            .events
            .announce(|| LockEvent::Waiting { name: self.claim.name().clone(), mode: self.claim.mode() });
    }

    /// The acquire has come to this: a token, a lock that is not free, or an error.
    pub(crate) fn end(mut self, answer: Result<Option<FencingToken>, &Error>) {
        // The caller has left: the guard is dropped at once.
        let cancelled = self.claim.is_cancelled();
        (self.outcome, self.token) = match answer {
            Ok(Some(token)) if cancelled => (AcquireOutcome::Cancelled, Some(token)),
            Ok(Some(token)) => (AcquireOutcome::Granted, Some(token)),
            Ok(None) => (self.refused(), None),
            Err(error) if error.kind() == ErrorKind::TimedOut => (AcquireOutcome::TimedOut, None),
            Err(error) if error.kind() == ErrorKind::Cancelled => (self.refused(), None),
            Err(_) => (AcquireOutcome::Failed, None),
        };
    }

    /// Why a claim has not got a lock that another holds.
    fn refused(&self) -> AcquireOutcome {
        match self.claim.wait() {
            Wait::No => AcquireOutcome::Held,
            Wait::Until(end) if self.claim.clock().has_passed(end) => AcquireOutcome::TimedOut,
            Wait::Until(_) | Wait::Forever => AcquireOutcome::Cancelled,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for span in [Some(&self.span), self.waits.as_ref()].into_iter().flatten() {
            span.record("lockwell.outcome", self.outcome.as_str());
            if let Some(token) = self.token {
                span.record("lockwell.token", token.get());
            }
        }
        if self.waits.is_some() {
            self.series().wait_ends();
        }
        self.series().acquired(self.outcome, self.since, self.claim.clock());
    }
}
