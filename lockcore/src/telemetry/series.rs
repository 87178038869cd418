//! Metrics, through the facade `metrics`: whatever recorder the application has installed gets them.
//!
//! No series has a lock's name for a label: names are without number in many applications, and each would be
//! a series of its own for as long as the recorder lives. The class of a request is a label, as the number of
//! classes is limited.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Key, Label, Recorder, with_recorder};

use super::catalogue::{GRACE_END, RECONNECTIONS, RELEASE_FAILURES, RENEWAL_MARGIN, RENEWALS, describe};
use super::names::{MOST, Names};
use super::recorder::{METADATA, count, note, record};
use crate::contract::Class;
use crate::telemetry::outcome::RenewalOutcome;
use crate::{Clock, Moment};

pub(super) use super::class_series::ClassSeries;
pub(crate) use super::class_series::Since;

fn key(name: &'static str, backend: &'static str, label: Option<(&'static str, &'static str)>) -> Key {
    let labels = [Some(("backend", backend)), label];
    let labels = labels.into_iter().flatten().map(|(key, value)| Label::from_static_parts(key, value));
    Key::from_parts(name, labels.collect::<Vec<_>>())
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

/// How many slots there are for classes: one for each that is told apart, one for the others, and one for
/// requests without a class.
const SLOTS: usize = MOST + 2;

/// The keys of one client's series. Clients of the same backend share the series themselves.
#[derive(Debug)]
pub(super) struct Series {
    backend: &'static str,
    names: Arc<Names>,
    /// By the number of the class; the last one is that of requests without a class.
    classes: [OnceLock<Box<ClassSeries>>; SLOTS],
    renewals: [Key; 3],
    renewal_margin: Key,
    release_failures: Key,
}

impl Series {
    pub(super) fn new(backend: &'static str, names: &Arc<Names>) -> Self {
        let renewal = |outcome| key(RENEWALS, backend, Some(("outcome", outcome)));
        let series = Self {
            backend,
            names: Arc::clone(names),
            classes: [const { OnceLock::new() }; SLOTS],
            renewals: ["extended", "lost", "unknown"].map(renewal),
            renewal_margin: key(RENEWAL_MARGIN, backend, None),
            release_failures: key(RELEASE_FAILURES, backend, None),
        };
        with_recorder(|recorder| {
            describe(recorder);
            series.begin(recorder);
        });
        series.of(Class::default());
        series
    }

    /// What has not happened yet is zero: a rate needs the value before the first increase.
    fn begin(&self, recorder: &dyn Recorder) {
        let reconnections = key(RECONNECTIONS, self.backend, None);
        for key in self.renewals.iter().chain([&self.release_failures, &reconnections]) {
            recorder.register_counter(key, &METADATA).increment(0);
        }
        recorder.register_gauge(&key(GRACE_END, self.backend, None), &METADATA).increment(0.0);
    }

    /// The series of a class. They begin with zero when the class is first used.
    pub(super) fn of(&self, class: Class) -> &ClassSeries {
        let slot = &self.classes[class.0.map_or(SLOTS - 1, usize::from)];
        match slot.get() {
            Some(series) => series,
            None => self.begin_class(slot, class),
        }
    }

    #[cold]
    fn begin_class<'a>(&self, slot: &'a OnceLock<Box<ClassSeries>>, class: Class) -> &'a ClassSeries {
        let name = class.0.map(|number| self.names.name(number));
        let mut is_new = false;
        let series = slot.get_or_init(|| {
            is_new = true;
            Box::new(ClassSeries::new(self.backend, class, name))
        });
        // Not in there: the recorder may take a lock of the same class.
        if is_new {
            with_recorder(|recorder| series.begin(recorder));
        }
        series
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
