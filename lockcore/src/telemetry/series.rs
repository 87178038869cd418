//! Metrics, through the facade `metrics`: whatever recorder the application has installed gets them.
//!
//! No series has a lock's name for a label: names are without number in many applications, and each would be
//! a series of its own for as long as the recorder lives.
//!
//! The keys are made once; the recorder is asked for its handle each time, since it may be installed later
//! than a client is made, and may forget series that were idle.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Key, Label, Metadata, Recorder, with_recorder};

use super::catalogue::{
    ACQUIRE_DURATION, ACQUIRES, GRACE_END, HELD, HOLD_DURATION, LOSSES, RECONNECTIONS, RELEASE_FAILURES,
    RENEWAL_MARGIN, RENEWALS, WAITERS, describe,
};
use crate::system::{Aside, log_aside, must_not_wait};
use crate::telemetry::level::Level;
use crate::telemetry::outcome::{AcquireOutcome, RenewalOutcome};
use crate::{Clock, Loss, Moment};

/// In the order of their declaration.
const OUTCOMES: [AcquireOutcome; 5] = [
    AcquireOutcome::Granted,
    AcquireOutcome::Held,
    AcquireOutcome::TimedOut,
    AcquireOutcome::Cancelled,
    AcquireOutcome::Failed,
];
const LOSS: [Loss; 4] = [Loss::Expired, Loss::Taken, Loss::HeldTooLong, Loss::NoProgress];

pub(super) static METADATA: Metadata<'static> = Metadata::new("lockwell", metrics::Level::INFO, None);

/// Calls the recorder for threads that must not wait for it.
static METRICS: Aside = Aside::new("lockwell-metrics");

/// When something began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(Moment);

impl Since {
    pub(super) fn now(clock: &Clock) -> Self {
        Self(clock.now())
    }

    fn elapsed(self, clock: &Clock) -> Duration {
        clock.now().since(self.0)
    }
}

/// Why a lock was lost, as the value of a label.
fn reason(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Taken => "taken",
        Loss::HeldTooLong => "held_too_long",
        Loss::NoProgress => "no_progress",
    }
}

fn key(name: &'static str, backend: &'static str, label: Option<(&'static str, &'static str)>) -> Key {
    let labels = [Some(("backend", backend)), label];
    let labels = labels.into_iter().flatten().map(|(key, value)| Label::from_static_parts(key, value));
    Key::from_parts(name, labels.collect::<Vec<_>>())
}

/// Calls the recorder, on the calling thread if that may wait for it.
pub(super) fn record(key: &Key, on: impl FnOnce(&dyn Recorder, &Key) + Send + 'static) {
    if must_not_wait() {
        let key = key.clone();
        METRICS.run(move || {
            with_recorder(|recorder| on(recorder, &key));
            tell_dropped();
        });
    } else {
        with_recorder(|recorder| on(recorder, key));
    }
}

/// What was dropped is missing in the counters and histograms for good.
fn tell_dropped() {
    let dropped = METRICS.take_dropped();
    if dropped > 0 {
        // Not here: a subscriber that blocks must cost no metrics.
        log_aside(move || {
            tracing::warn!(dropped, "metrics of background threads were dropped: the recorder is too slow");
        });
    }
}

fn count(key: &Key) {
    record(key, |recorder, key| recorder.register_counter(key, &METADATA).increment(1));
}

fn note(key: &Key, span: Duration) {
    record(key, move |recorder, key| {
        recorder.register_histogram(key, &METADATA).record(span.as_secs_f64());
    });
}

/// A connection has failed and is replaced. It is rare, so the key is made each time.
pub(super) fn reconnected(backend: &'static str) {
    count(&key(RECONNECTIONS, backend, None));
}

/// The server grants nothing for this time. It is rare, so the key is made each time.
pub(super) fn grace_left(backend: &'static str, left: Duration) {
    let end = SystemTime::now().checked_add(left).and_then(|end| end.duration_since(UNIX_EPOCH).ok());
    let end = end.unwrap_or_default().as_secs_f64();
    record(&key(GRACE_END, backend, None), move |recorder, key| {
        recorder.register_gauge(key, &METADATA).set(end);
    });
}

/// A gauge, and its number.
#[derive(Debug)]
struct Counted {
    key: Key,
    level: Arc<Level>,
}

impl Counted {
    fn new(name: &'static str, backend: &'static str) -> Self {
        Self { key: key(name, backend, None), level: Level::of(name, backend) }
    }

    fn add(&self, by: i32) {
        self.level.add(by);
        let level = Arc::clone(&self.level);
        record(&self.key, move |recorder, key| show(&level, recorder, key));
    }
}

/// Shows the number of a gauge. If others change it again and again, the thread for metrics goes on with it.
fn show(level: &Arc<Level>, recorder: &dyn Recorder, key: &Key) {
    if level.show(|| recorder.register_gauge(key, &METADATA)) {
        return;
    }
    let (level, key) = (Arc::clone(level), key.clone());
    METRICS.run(move || with_recorder(|recorder| show(&level, recorder, &key)));
}

/// The keys of one client's series. Clients of the same backend share the series themselves.
#[derive(Debug)]
pub(super) struct Series {
    acquires: [Key; 5],
    acquire_duration: [Key; 5],
    waiters: Counted,
    held: Counted,
    /// Released, and lost.
    hold_duration: [Key; 2],
    losses: [Key; 4],
    renewals: [Key; 3],
    renewal_margin: Key,
    release_failures: Key,
}

impl Series {
    pub(super) fn new(backend: &'static str) -> Self {
        let of = |name, label, value| key(name, backend, Some((label, value)));
        let series = Self {
            acquires: OUTCOMES.map(|outcome| of(ACQUIRES, "outcome", outcome.as_str())),
            acquire_duration: OUTCOMES.map(|outcome| of(ACQUIRE_DURATION, "outcome", outcome.as_str())),
            waiters: Counted::new(WAITERS, backend),
            held: Counted::new(HELD, backend),
            hold_duration: ["released", "lost"].map(|outcome| of(HOLD_DURATION, "outcome", outcome)),
            losses: LOSS.map(|loss| of(LOSSES, "reason", reason(loss))),
            renewals: ["extended", "lost", "unknown"].map(|outcome| of(RENEWALS, "outcome", outcome)),
            renewal_margin: key(RENEWAL_MARGIN, backend, None),
            release_failures: key(RELEASE_FAILURES, backend, None),
        };
        with_recorder(|recorder| {
            describe(recorder);
            series.begin(recorder, backend);
        });
        series
    }

    /// What has not happened yet is zero: a rate needs the value before the first increase.
    fn begin(&self, recorder: &dyn Recorder, backend: &'static str) {
        let reconnections = key(RECONNECTIONS, backend, None);
        let counters = self.acquires.iter().chain(&self.losses).chain(&self.renewals);
        for key in counters.chain([&self.release_failures, &reconnections]) {
            recorder.register_counter(key, &METADATA).increment(0);
        }
        for Counted { key, level } in [&self.waiters, &self.held] {
            show(level, recorder, key);
        }
        recorder.register_gauge(&key(GRACE_END, backend, None), &METADATA).increment(0.0);
    }

    pub(super) fn acquired(&self, outcome: AcquireOutcome, since: Since, clock: &Clock) {
        count(&self.acquires[outcome as usize]);
        note(&self.acquire_duration[outcome as usize], since.elapsed(clock));
    }

    pub(super) fn wait_begins(&self) {
        self.waiters.add(1);
    }

    pub(super) fn wait_ends(&self) {
        self.waiters.add(-1);
    }

    pub(super) fn hold_begins(&self) {
        self.held.add(1);
    }

    pub(super) fn hold_ends(&self, since: Since, clock: &Clock, loss: Option<Loss>) {
        self.held.add(-1);
        note(&self.hold_duration[usize::from(loss.is_some())], since.elapsed(clock));
        let key = self.losses.iter().zip(LOSS).find(|(_, of)| Some(*of) == loss);
        if let Some((key, _)) = key {
            count(key);
        }
    }

    pub(super) fn renewal(&self, outcome: RenewalOutcome) {
        count(&self.renewals[outcome as usize]);
    }

    /// How near the lease was to its end when its extension was confirmed.
    pub(super) fn renewed_before(&self, valid_until: Moment, clock: &Clock) {
        // A lock that was released meanwhile was not near its end.
        if !clock.has_passed(valid_until) {
            note(&self.renewal_margin, valid_until.since(clock.now()));
        }
    }

    pub(super) fn release_failed(&self) {
        count(&self.release_failures);
    }
}
