//! What the command prints for programs. Fields may be added, and are never renamed. A change that breaks
//! readers raises [`SCHEMA_VERSION`].

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use lockwell::{
    FencingToken, Finding, Holder, Job, JobState, LockName, LockStatus, Mode, Record, TraceParent,
    WaitingClaim,
};
use serde::Serialize;

use crate::exit::{Failure, SOFTWARE};

pub(crate) const SCHEMA_VERSION: u32 = 1;

/// One lock by itself.
#[derive(Serialize)]
pub(crate) struct OneReport<'a> {
    schema_version: u32,
    #[serde(flatten)]
    lock: LockReport<'a>,
}

impl<'a> OneReport<'a> {
    pub(crate) fn new(status: &'a LockStatus) -> Self {
        Self { schema_version: SCHEMA_VERSION, lock: LockReport::new(status) }
    }
}

/// Several locks, or all that are held.
#[derive(Serialize)]
pub(crate) struct ManyReport<'a> {
    schema_version: u32,
    locks: Vec<LockReport<'a>>,
    /// For how long locks that are held may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_ms: Option<u64>,
}

impl<'a> ManyReport<'a> {
    pub(crate) fn new(statuses: &'a [LockStatus], unknown_for: Option<Duration>) -> Self {
        let locks = statuses.iter().map(LockReport::new).collect();
        Self { schema_version: SCHEMA_VERSION, locks, unknown_ms: unknown_for.map(millis) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct LockReport<'a> {
    name: &'a str,
    held: bool,
    holders: Vec<HolderReport<'a>>,
    waiters: usize,
    /// The first of them, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<WaitingReport<'a>>,
    /// Left out if nobody waits, and where the server does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_wait_ms: Option<u64>,
    /// For how long it is not known who else holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_ms: Option<u64>,
}

impl<'a> LockReport<'a> {
    pub(crate) fn new(status: &'a LockStatus) -> Self {
        Self {
            name: status.name.as_str(),
            held: status.is_held(),
            holders: status.holders.iter().map(HolderReport::new).collect(),
            waiters: status.waiters,
            waiting: status.waiting.iter().map(WaitingReport::new).collect(),
            longest_wait_ms: status.longest_wait.map(millis),
            unknown_ms: status.unknown_for.map(millis),
        }
    }
}

fn limit(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { limit } => Some(limit.get()),
        _ => None,
    }
}

/// One that waits.
#[derive(Debug, Serialize)]
struct WaitingReport<'a> {
    label: &'a str,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl<'a> WaitingReport<'a> {
    fn new(waits: &'a WaitingClaim) -> Self {
        Self {
            label: &waits.label,
            mode: waits.mode.name(),
            limit: limit(waits.mode),
            waited_ms: waits.waited.map(millis),
            traceparent: waits.traceparent.as_ref().map(TraceParent::as_str),
        }
    }
}

#[derive(Debug, Serialize)]
struct HolderReport<'a> {
    token: u64,
    label: &'a str,
    mode: &'static str,
    /// How many may hold it at the same time, for a permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    ttl_ms: u64,
    held_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl<'a> HolderReport<'a> {
    fn new(holder: &'a Holder) -> Self {
        Self {
            token: holder.token.get(),
            label: &holder.label,
            mode: holder.mode.name(),
            limit: limit(holder.mode),
            ttl_ms: millis(holder.ttl_left),
            held_ms: millis(holder.held_for),
            traceparent: holder.traceparent.as_ref().map(TraceParent::as_str),
        }
    }
}

/// A lock that was waited for, as it is at the end of the wait.
#[derive(Serialize)]
pub(crate) struct WaitedReport<'a> {
    schema_version: u32,
    #[serde(flatten)]
    lock: LockReport<'a>,
    waited_ms: u64,
}

impl<'a> WaitedReport<'a> {
    pub(crate) fn new(status: &'a LockStatus, waited: Duration) -> Self {
        Self { schema_version: SCHEMA_VERSION, lock: LockReport::new(status), waited_ms: millis(waited) }
    }
}

/// The record of a lock, or that there is none.
#[derive(Serialize)]
pub(crate) struct RecordReport<'a> {
    schema_version: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    /// If it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_id: Option<String>,
}

impl<'a> RecordReport<'a> {
    pub(crate) fn new(name: &'a LockName, record: Option<&'a Record>) -> Self {
        let text = record.map(|record| str::from_utf8(&record.value));
        let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
        let hex = |record: &Record| record.value.iter().flat_map(digits).flatten().collect();
        Self {
            schema_version: SCHEMA_VERSION,
            name: name.as_str(),
            value: text.and_then(Result::ok),
            value_hex: record.filter(|_| text.is_some_and(|text| text.is_err())).map(hex),
            token: record.map(|record| record.token.get()),
            hold_id: record.map(|record| record.hold.to_string()),
        }
    }
}

/// What is known of jobs.
#[derive(Serialize)]
pub(crate) struct JobsReport<'a> {
    schema_version: u32,
    jobs: Vec<JobReport<'a>>,
}

#[derive(Serialize)]
struct JobReport<'a> {
    name: &'a str,
    key: &'a str,
    state: &'static str,
    /// By the clock of its host.
    since: String,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

impl<'a> JobsReport<'a> {
    pub(crate) fn new(jobs: &'a [Job]) -> Self {
        let one = |job: &'a Job| JobReport {
            name: job.name.as_str(),
            key: &job.key,
            state: job_state(job),
            since: instant(job.began),
            attempts: job.attempts,
            took_ms: job.took.map(millis),
            by: job.by.as_deref(),
            token: job.token.map(FencingToken::get),
        };
        Self { schema_version: SCHEMA_VERSION, jobs: jobs.iter().map(one).collect() }
    }
}

pub(crate) fn job_state(job: &Job) -> &'static str {
    match job.state {
        JobState::Done => "done",
        JobState::Running => "running",
        JobState::Failed => "failed",
        JobState::Died => "died",
        _ => "unknown",
    }
}

/// As RFC 3339 writes it, in UTC.
pub(crate) fn instant(time: SystemTime) -> String {
    let mut text = String::new();
    match write!(text, "{}", humantime::format_rfc3339_millis(time)) {
        Ok(()) => text,
        // A clock beyond the year 9999.
        Err(_) => "unknown".to_owned(),
    }
}

/// A lock that was released.
#[derive(Serialize)]
pub(crate) struct ReleasedReport<'a> {
    schema_version: u32,
    name: &'a str,
    /// Whether it was held until now.
    released: bool,
    by_force: bool,
    /// By force: who held it.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<HolderReport<'a>>>,
}

impl<'a> ReleasedReport<'a> {
    pub(crate) fn by_handle(name: &'a LockName, released: bool) -> Self {
        Self { schema_version: SCHEMA_VERSION, name: name.as_str(), released, by_force: false, holders: None }
    }

    pub(crate) fn by_force(status: &'a LockStatus) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            name: status.name.as_str(),
            released: status.is_held(),
            by_force: true,
            holders: Some(status.holders.iter().map(HolderReport::new).collect()),
        }
    }
}

/// A grace period that was begun by hand.
#[derive(Serialize)]
pub(crate) struct GraceReport {
    schema_version: u32,
    /// The address without its password.
    server: String,
    grace_ms: u64,
}

impl GraceReport {
    pub(crate) fn new(server: String, lasts: Duration) -> Self {
        Self { schema_version: SCHEMA_VERSION, server, grace_ms: millis(lasts) }
    }
}

/// The statements that create the lock tables.
#[derive(Serialize)]
pub(crate) struct TablesReport<'a> {
    pub(crate) schema_version: u32,
    /// The address without its password.
    pub(crate) server: String,
    pub(crate) statements: &'a str,
}

/// A message on standard error.
#[derive(Serialize)]
pub(crate) struct MessageReport<'a> {
    schema_version: u32,
    severity: &'static str,
    message: &'a str,
    /// Of the message that says why lockwell ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_status: Option<u8>,
}

impl<'a> MessageReport<'a> {
    pub(crate) fn new(severity: &'static str, message: &'a str, exit_status: Option<u8>) -> Self {
        Self { schema_version: SCHEMA_VERSION, severity, message, exit_status }
    }
}

/// A lock that was taken for a time.
#[derive(Serialize)]
pub(crate) struct AcquiredReport<'a> {
    pub(crate) schema_version: u32,
    pub(crate) handle: &'a str,
    pub(crate) name: &'a str,
    pub(crate) token: u64,
    pub(crate) ttl_ms: u64,
}

/// What a doctor found.
#[derive(Serialize)]
pub(crate) struct ExaminationReport<'a> {
    schema_version: u32,
    /// The address without its password.
    server: String,
    worst: String,
    findings: Vec<FindingReport<'a>>,
}

#[derive(Serialize)]
struct FindingReport<'a> {
    subject: &'a str,
    severity: String,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    remedy: &'a str,
}

impl<'a> ExaminationReport<'a> {
    pub(crate) fn new(server: String, findings: &'a [Finding]) -> Self {
        let worst = findings.iter().map(|finding| finding.severity).max();
        let one = |finding: &'a Finding| FindingReport {
            subject: finding.subject,
            severity: finding.severity.to_string(),
            message: &finding.message,
            remedy: &finding.remedy,
        };
        Self {
            schema_version: SCHEMA_VERSION,
            server,
            worst: worst.unwrap_or(lockwell::Severity::Good).to_string(),
            findings: findings.iter().map(one).collect(),
        }
    }
}

/// The report over several lines.
pub(crate) fn pretty(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(report).map(|text| text + "\n").map_err(|error| unwritten(&error))
}

/// The report in one line.
pub(crate) fn line(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(report).map(|text| text + "\n").map_err(|error| unwritten(&error))
}

fn unwritten(error: &serde_json::Error) -> Failure {
    Failure::new(SOFTWARE, error.to_string())
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Prints to the standard output. False: the reader has closed it, as `head` does.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).map_err(Failure::from),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn for_programs() {
        let mode = Mode::Permit { limit: NonZeroU32::new(3).unwrap() };
        let left = Duration::from_nanos(9_500_000_123);
        let holder =
            Holder::new(FencingToken::new(7), "web-1:4711", mode, left).held_for(Duration::from_secs(61));
        let status = LockStatus::new(LockName::new("orders/42").unwrap(), vec![holder], 2)
            .longest_wait(Some(Duration::from_micros(1_500_900)));
        let value = serde_json::to_value(OneReport::new(&status)).unwrap();
        let lock = serde_json::json!({
            "name": "orders/42", "held": true, "waiters": 2, "longest_wait_ms": 1500, "holders": [{
                "token": 7, "label": "web-1:4711", "mode": "permit", "limit": 3, "ttl_ms": 9500, "held_ms": 61000,
            }],
        });
        let mut one = lock.clone();
        one["schema_version"] = 1.into();
        assert_eq!(value, one);
        let many = serde_json::to_value(ManyReport::new(std::slice::from_ref(&status), None)).unwrap();
        assert_eq!(many, serde_json::json!({ "schema_version": 1, "locks": [lock] }));
        let unknown = status.unknown_for(Some(Duration::from_micros(7_000_900)));
        assert_eq!(serde_json::to_value(OneReport::new(&unknown)).unwrap()["unknown_ms"], 7000);
        let many = serde_json::to_value(ManyReport::new(&[], unknown.unknown_for)).unwrap();
        assert_eq!(many, serde_json::json!({ "schema_version": 1, "locks": [], "unknown_ms": 7000 }));
    }
}
