//! What is shown of locks, as tuples, of which the package makes its classes.

use std::time::{Duration, SystemTime};

use lockwell::{
    FencingToken, Finding, Holder, Job, LockEvent, LockStatus, Mode, Record, TraceParent, WaitingClaim,
};

use crate::words::word;

/// The kind of hold, and the number of permits.
pub(crate) fn mode(mode: Mode) -> (&'static str, Option<u32>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Permit { limit } => ("permit", Some(limit.get())),
        // A mode of a later version.
        _ => ("unknown", None),
    }
}

/// Token, label, kind, permits, seconds left, seconds held, traceparent.
type HolderShown = (u64, String, &'static str, Option<u32>, f64, f64, Option<String>);

/// Label, kind, permits, seconds waited, traceparent.
type WaitingShown = (String, &'static str, Option<u32>, Option<f64>, Option<String>);

fn holder(holder: &Holder) -> HolderShown {
    let (kind, limit) = mode(holder.mode);
    let (left, held) = (holder.ttl_left.as_secs_f64(), holder.held_for.as_secs_f64());
    (holder.token.get(), holder.label.clone(), kind, limit, left, held, trace(holder.traceparent.as_ref()))
}

fn waiting(claim: &WaitingClaim) -> WaitingShown {
    let (kind, limit) = mode(claim.mode);
    let waited = claim.waited.map(|waited| waited.as_secs_f64());
    (claim.label.clone(), kind, limit, waited, trace(claim.traceparent.as_ref()))
}

fn trace(traceparent: Option<&TraceParent>) -> Option<String> {
    traceparent.map(ToString::to_string)
}

/// Name, holders, the first waiters, number of waiters, seconds of the longest wait, seconds for which holders may be missing.
type StatusShown = (String, Vec<HolderShown>, Vec<WaitingShown>, usize, Option<f64>, Option<f64>);

pub(crate) fn status(status: &LockStatus) -> StatusShown {
    let holders = status.holders.iter().map(holder).collect();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let (longest, unknown) = (seconds(status.longest_wait), seconds(status.unknown_for));
    let waiting = status.waiting.iter().map(waiting).collect();
    (status.name.as_str().to_owned(), holders, waiting, status.waiters, longest, unknown)
}

/// Value, token, hold.
pub(crate) fn record(record: Record) -> (Vec<u8>, u64, String) {
    (record.value, record.token.get(), record.hold.to_string())
}

/// Name, key, state, attempts, seconds from 1970 to its beginning, seconds that it took, label, token.
pub(crate) type JobShown = (String, String, String, u32, f64, Option<f64>, Option<String>, Option<u64>);

pub(crate) fn job(job: Job) -> JobShown {
    let began = job.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let (state, took) = (word(job.state), job.took.map(|took| took.as_secs_f64()));
    let token = job.token.map(FencingToken::get);
    (job.name.as_str().to_owned(), job.key, state, job.attempts, began, took, job.by, token)
}

/// Subject, severity, message, remedy.
pub(crate) fn finding(finding: Finding) -> (&'static str, String, String, String) {
    (finding.subject, word(finding.severity), finding.message, finding.remedy)
}

/// Kind, name, token, kind of hold, permits, reason of a loss, number of missed events.
type EventShown =
    (&'static str, Option<String>, Option<u64>, Option<&'static str>, Option<u32>, Option<String>, u64);

pub(crate) fn event(event: &LockEvent) -> EventShown {
    let name = event.name().map(|name| name.as_str().to_owned());
    let (kind, token, of, loss, missed) = match event {
        LockEvent::Waiting { mode, .. } => ("waiting", None, Some(*mode), None, 0),
        LockEvent::Granted { mode, token, .. } => ("granted", Some(token.get()), Some(*mode), None, 0),
        LockEvent::Suspect { token, .. } => ("suspect", Some(token.get()), None, None, 0),
        LockEvent::Recovered { token, .. } => ("recovered", Some(token.get()), None, None, 0),
        LockEvent::Lost { token, loss, .. } => ("lost", Some(token.get()), None, Some(word(loss)), 0),
        LockEvent::Released { token, .. } => ("released", Some(token.get()), None, None, 0),
        LockEvent::Missed(number) => ("missed", None, None, None, *number),
        // An event of a later version.
        _ => ("unknown", None, None, None, 0),
    };
    let (mode, permits) = of.map_or((None, None), |of| {
        let (mode, permits) = mode(of);
        (Some(mode), permits)
    });
    (kind, name, token, mode, permits, loss, missed)
}
