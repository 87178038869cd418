//! The spans. They are of the target `lockwell` and of the level `DEBUG`: where no subscriber wants that,
//! each costs only the check of a flag.

use tracing::Span;
use tracing::field::{Empty, display};

use super::Telemetry;
use crate::contract::Class;
use crate::{Claim, Grant, Holder, Released, Result};

macro_rules! span {
    ($name:literal, $seen:expr, $claim:expr, $class:expr, $token:expr $(, $($more:tt)+)?) => {
        tracing::debug_span!(
            target: "lockwell",
            $name,
            lockwell.backend = $seen.backend,
            lockwell.name = %$claim.name(),
            lockwell.class = $seen.class_name($class),
            lockwell.mode = $claim.mode().name(),
            lockwell.token = $token,
            lockwell.outcome = Empty,
            $($($more)+)?
        )
    };
}

impl Telemetry {
    /// From the first step of an acquire until it has an outcome. The token is known at the end.
    pub(super) fn acquire_span(&self, claim: &Claim) -> Span {
        span!("acquire", self, claim, claim.class(), Empty)
    }

    /// The part of an acquire in which another holds the lock.
    pub(super) fn wait_span(&self, claim: &Claim, acquire: &Span) -> Span {
        acquire.in_scope(|| {
            span!(
                "wait",
                self,
                claim,
                claim.class(),
                Empty,
                lockwell.holder.label = Empty,
                lockwell.holder.traceparent = Empty,
            )
        })
    }

    /// From the grant until the guard releases the lock, within the span of whoever gets the lock.
    pub(crate) fn hold_span(&self, grant: &Grant, class: Class) -> Span {
        span!("hold", self, grant.claim(), class, grant.token().get())
    }

    /// From the end of the hold until the server's answer.
    pub(crate) fn release_span(&self, grant: &Grant, class: Class) -> Span {
        span!("release", self, grant.claim(), class, grant.token().get())
    }
}

/// Records on the span of a wait who holds the lock.
pub(super) fn waits_for(wait: &Span, holder: &Holder) {
    wait.record("lockwell.holder.label", &*holder.label);
    if let Some(traceparent) = &holder.traceparent {
        wait.record("lockwell.holder.traceparent", display(traceparent));
    }
}

/// Records what a release came to.
pub(crate) fn released(span: &Span, answer: &Result<Released>) {
    span.record(
        "lockwell.outcome",
        match answer {
            Ok(Released::Released) => "released",
            Ok(Released::InDoubt) => "in_doubt",
            Ok(Released::NotHeld) => "not_held",
            Err(_) => "failed",
        },
    );
}
