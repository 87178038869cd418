//! Calls of the recorder that the application has installed.
//!
//! It is asked for its handle each time, since it may be installed later than a client is made, and may forget
//! series that were idle.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Key, Metadata, Recorder, with_recorder};

use crate::contract::Class;
use crate::system::{Aside, log_aside, must_not_wait};
use crate::telemetry::level::Level;

pub(super) static METADATA: Metadata<'static> = Metadata::new("lockwell", metrics::Level::INFO, None);

/// Calls the recorder for threads that must not wait for it.
static METRICS: Aside = Aside::new("lockwell-metrics");

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
            tracing::warn!(
                lockwell.dropped = dropped,
                "metrics of background threads were dropped: the recorder is too slow"
            );
        });
    }
}

pub(super) fn count(key: &Key) {
    record(key, |recorder, key| recorder.register_counter(key, &METADATA).increment(1));
}

pub(super) fn note(key: &Key, span: Duration) {
    record(key, move |recorder, key| {
        recorder.register_histogram(key, &METADATA).record(span.as_secs_f64());
    });
}

/// A gauge, and its number.
#[derive(Debug)]
pub(super) struct Counted {
    key: Key,
    level: Arc<Level>,
}

impl Counted {
    pub(super) fn new(key: Key, (series, backend, class): (&'static str, &'static str, Class)) -> Self {
        Self { key, level: Level::of(series, backend, class) }
    }

    /// Shows the number as it is.
    pub(super) fn begin(&self, recorder: &dyn Recorder) {
        show(&self.level, recorder, &self.key);
    }

    pub(super) fn add(&self, by: i32) {
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
