//! One acquire, as it is seen from outside.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use tracing::Span;

use super::series::ClassSeries;
use super::{LockEvent, Since, Telemetry, spans};
use crate::telemetry::outcome::AcquireOutcome;
use crate::{Claim, DistributedLock, Error, ErrorKind, FencingToken, LockStatus, Result, Wait};

/// How long a claim has waited at the server when it looks who holds the lock. Most waits are shorter, and seldom what a
/// trace is read for: they cost the server no request.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// Watches an acquire: how long it takes, whether it has to wait, and what becomes of it. Dropping it is an
/// outcome, too.
#[must_use]
pub(crate) struct Watch {
    telemetry: Arc<Telemetry>,
    claim: Claim,
    since: Since,
    /// The look at the holder, once it is due. It is part of the wait, so it is dropped before the span of that.
    look: Option<Pin<Box<dyn Future<Output = Infallible> + Send>>>,
    /// The span of the wait, once there is one. It is dropped before the one around it.
    waits: Option<Span>,
    span: Span,
    outcome: AcquireOutcome,
    token: Option<FencingToken>,
}

impl Telemetry {
    /// Watches one acquire, from now until its end.
    pub(crate) fn watch(self: &Arc<Self>, claim: &Claim) -> Watch {
        Watch {
            since: Since::now(claim.clock()),
            span: self.acquire_span(claim),
            telemetry: Arc::clone(self),
            claim: claim.clone(),
            look: None,
            waits: None,
            outcome: AcquireOutcome::Cancelled,
            token: None,
        }
    }
}

impl Watch {
    /// Does the work of the acquire within its span, and sees when it begins to wait, and for whom.
    pub(crate) async fn over<T>(
        &mut self,
        work: impl Future<Output = T>,
        backend: &Arc<dyn DistributedLock>,
    ) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let polled = self.waits.as_ref().unwrap_or(&self.span).in_scope(|| work.as_mut().poll(cx));
            if polled.is_pending() && self.waits.is_none() && self.claim.is_waiting() {
                self.begin_to_wait();
            }
            if polled.is_pending() {
                self.look(backend, cx);
            }
            polled
        })
        .await
    }

    fn series(&self) -> &ClassSeries {
        self.telemetry.series.of(self.claim.class())
    }

    fn begin_to_wait(&mut self) {
        self.waits = Some(self.telemetry.wait_span(&self.claim, &self.span));
        self.series().wait_begins();
        self.telemetry
            .events
            .announce(|| LockEvent::Waiting { name: self.claim.name().clone(), mode: self.claim.mode() });
    }

    /// Looks at the holder, beside the work and no longer than that, if the span of the wait is recorded. A task that
    /// waits behind others of its process asks nothing: they look for the same holder.
    fn look(&mut self, backend: &Arc<dyn DistributedLock>, cx: &mut Context<'_>) {
        let Some(span) = self.waits.as_ref().filter(|span| !span.is_disabled()) else { return };
        if self.look.is_none() && self.claim.is_asked() {
            let (backend, telemetry) = (Arc::clone(backend), Arc::clone(&self.telemetry));
            self.look = Some(Box::pin(look(backend, telemetry, self.claim.clone(), span.clone())));
        }
        if let Some(look) = &mut self.look {
            let Poll::Pending = span.in_scope(|| look.as_mut().poll(cx));
        }
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

/// Records on the span of a wait who holds the lock, once. A failure or a panic of the backend is no concern of the wait.
async fn look(
    backend: Arc<dyn DistributedLock>,
    telemetry: Arc<Telemetry>,
    claim: Claim,
    span: Span,
) -> Infallible {
    let looked = async {
        let _one_of_few = loop {
            claim.clock().sleep(LOOK_AFTER).await;
            if let Ok(permit) = telemetry.looks.try_acquire() {
                break permit;
            }
        };
        backend.inspect(claim.name()).await
    };
    let status = AssertUnwindSafe(looked).catch_unwind().await;
    // The answer to the claim itself may still be under way.
    let other = |status: &'_ LockStatus| status.holders.iter().find(|holder| !holder.may_be(&claim)).cloned();
    if let Some(holder) = status.iter().flatten().find_map(other) {
        spans::waits_for(&span, &holder);
    }
    pending().await
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
