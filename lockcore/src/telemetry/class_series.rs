//! The series of the requests of one class.

use std::time::Duration;

use metrics::{Key, Label, Recorder};

use super::catalogue::{ACQUIRE_DURATION, ACQUIRES, HELD, HOLD_DURATION, LOSSES, WAITERS};
use super::recorder::{Counted, METADATA, count, note};
use crate::contract::Class;
use crate::telemetry::outcome::AcquireOutcome;
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

/// The keys of the series of a class, for one client. Clients of the same backend share the series
/// themselves.
#[derive(Debug)]
pub(super) struct ClassSeries {
    acquires: [Key; 5],
    acquire_duration: [Key; 5],
    waiters: Counted,
    held: Counted,
    /// Released, and lost.
    hold_duration: [Key; 2],
    losses: [Key; 4],
}

impl ClassSeries {
    /// Without a class there is no such label. For Prometheus that is the same as an empty one, and a recorder
    /// compares two labels faster than three.
    pub(super) fn new(backend: &'static str, class: Class, name: Option<&str>) -> Self {
        let key = |series, label: Option<(&'static str, &'static str)>| {
            let mut labels = vec![Label::from_static_parts("backend", backend)];
            labels.extend(name.map(|name| Label::new("class", name.to_owned())));
            labels.extend(label.map(|(key, value)| Label::from_static_parts(key, value)));
            Key::from_parts(series, labels)
        };
        let counted = |series| Counted::new(key(series, None), (series, backend, class));
        let by_outcome = |series| OUTCOMES.map(|it| key(series, Some(("outcome", it.as_str()))));
        Self {
            acquires: by_outcome(ACQUIRES),
            acquire_duration: by_outcome(ACQUIRE_DURATION),
            waiters: counted(WAITERS),
            held: counted(HELD),
            hold_duration: ["released", "lost"].map(|it| key(HOLD_DURATION, Some(("outcome", it)))),
            losses: LOSS.map(|loss| key(LOSSES, Some(("reason", reason(loss))))),
        }
    }

    /// What has not happened yet is zero: a rate needs the value before the first increase.
    pub(super) fn begin(&self, recorder: &dyn Recorder) {
        for key in self.acquires.iter().chain(&self.losses) {
            recorder.register_counter(key, &METADATA).increment(0);
        }
        for gauge in [&self.waiters, &self.held] {
            gauge.begin(recorder);
        }
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
}
