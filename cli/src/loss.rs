//! Why a lock was lost, in words and for programs.

use std::time::Duration;

use lockwell::Loss;
use lockwell::backend::Moment;

use crate::hold::Hold;
use crate::pulse::Pulse;
use crate::say::rounded;

/// Why the lease of a lost lock was not renewed, as far as it is known.
pub(crate) fn cause(pulse: &mut Pulse, ttl: Option<Duration>, hold: &Hold) -> Option<String> {
    let stopped = pulse.stopped(ttl.unwrap_or(lockwell::DEFAULT_TTL), Moment::now()).map(|time| {
        format!("this process was stopped for {}, and nothing renewed the lock meanwhile", rounded(time))
    });
    let failed = hold.renewal_failure().map(|why| format!("the last renewal failed: {why}"));
    // A busy machine may have stopped this process for a moment while the server was away.
    match (stopped, failed) {
        (Some(stopped), Some(failed)) => Some(format!("{stopped}; {failed}")),
        (stopped, failed) => stopped.or(failed),
    }
}

/// Why a lock was lost. `cause`: why its lease was not renewed.
pub(crate) fn words(loss: Loss, cause: Option<String>) -> String {
    match loss {
        Loss::Expired => match cause {
            Some(cause) => format!("its lease ran out before it could be renewed: {cause}"),
            None => "its lease ran out before it could be renewed; is the server reachable, and --ttl long enough for \
                     its outages?"
                .to_owned(),
        },
        Loss::HeldTooLong => "it was held for as long as --max-hold allows".to_owned(),
        Loss::NoProgress => "no progress was reported for as long as --progress-within allows".to_owned(),
        Loss::Taken => "the lock server says that another has it, or that it was freed by force".to_owned(),
        _ => "reason unknown".to_owned(),
    }
}

/// The word for programs.
pub(crate) fn code(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Taken => "taken",
        Loss::HeldTooLong => "held_too_long",
        Loss::NoProgress => "no_progress",
        _ => "other",
    }
}
