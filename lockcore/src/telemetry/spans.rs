//! The spans. They are of the target `lockwell` and of the level `DEBUG`: where no subscriber wants that,
//! each costs only the check of a flag.

use tracing::Span;
use tracing::field::Empty;

use crate::{Claim, Grant, Released, Result};

macro_rules! span {
    ($name:literal, $backend:expr, $claim:expr, $token:expr) => {
        tracing::debug_span!(
            target: "lockwell",
            $name,
            backend = $backend,
            name = %$claim.name(),
            mode = $claim.mode().name(),
            token = $token,
            outcome = Empty,
        )
    };
}

/// From the first step of an acquire until it has an outcome. The token is known at the end.
pub(super) fn acquire(backend: &'static str, claim: &Claim) -> Span {
    span!("acquire", backend, claim, Empty)
}

/// The part of an acquire in which another holds the lock.
pub(super) fn wait(backend: &'static str, claim: &Claim, acquire: &Span) -> Span {
    acquire.in_scope(|| span!("wait", backend, claim, Empty))
}

/// From the grant until the guard releases the lock.
pub(super) fn hold(backend: &'static str, grant: &Grant) -> Span {
    span!("hold", backend, grant.claim(), grant.token().get())
}

/// From the end of the hold until the server's answer.
pub(super) fn release(backend: &'static str, grant: &Grant) -> Span {
    span!("release", backend, grant.claim(), grant.token().get())
}

/// Records what a release came to.
pub(crate) fn released(span: &Span, answer: &Result<Released>) {
    span.record(
        "outcome",
        match answer {
            Ok(Released::Released) => "released",
            Ok(Released::InDoubt) => "in_doubt",
            Ok(Released::NotHeld) => "not_held",
            Err(_) => "failed",
        },
    );
}
