//! The series that there are.
//!
//! Their names follow the conventions of OpenTelemetry: words with dots between, and neither a unit nor
//! `_total`, which an exporter for Prometheus adds.

use metrics::{KeyName, Recorder, Unit};

pub(super) const ACQUIRES: &str = "lockwell.acquires";
pub(super) const ACQUIRE_DURATION: &str = "lockwell.acquire.duration";
pub(super) const WAITERS: &str = "lockwell.waiters";
pub(super) const HELD: &str = "lockwell.held";
pub(super) const HOLD_DURATION: &str = "lockwell.hold.duration";
pub(super) const LOSSES: &str = "lockwell.losses";
pub(super) const RENEWALS: &str = "lockwell.renewals";
pub(super) const RENEWAL_MARGIN: &str = "lockwell.renewal.margin";
pub(super) const RELEASE_FAILURES: &str = "lockwell.release.failures";
pub(super) const RECONNECTIONS: &str = "lockwell.reconnections";
pub(super) const GRACE_END: &str = "lockwell.grace.end.timestamp";
pub(super) const JOB_ATTEMPTS: &str = "lockwell.job.attempts";
pub(super) const JOB_SUCCESS: &str = "lockwell.job.success.timestamp";

/// What the values of a series are.
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// The kind, the unit and the text of each.
const ALL: [(&str, Kind, Unit, &str); 13] = [
    (ACQUIRES, Counter, Unit::Count, "Acquires that have come to an end, by outcome"),
    (ACQUIRE_DURATION, Histogram, Unit::Seconds, "How long acquires took, by outcome"),
    (WAITERS, Gauge, Unit::Count, "Acquires that wait for their turn"),
    (HELD, Gauge, Unit::Count, "Locks that are held"),
    (HOLD_DURATION, Histogram, Unit::Seconds, "How long locks were held, by how that ended"),
    (LOSSES, Counter, Unit::Count, "Held locks that were lost, by reason"),
    (RENEWALS, Counter, Unit::Count, "Renewals of leases, by outcome"),
    (RENEWAL_MARGIN, Histogram, Unit::Seconds, "What was left of a lease when its extension was confirmed"),
    (RELEASE_FAILURES, Counter, Unit::Count, "Failed releases of claims; each is repeated"),
    (RECONNECTIONS, Counter, Unit::Count, "Connections to lock servers that failed and were replaced"),
    (
        GRACE_END,
        Gauge,
        Unit::Seconds,
        "Until when the server grants nothing, as it may have forgotten grants; Unix time",
    ),
    (JOB_ATTEMPTS, Counter, Unit::Count, "Attempts at jobs that run once for a key, which began here"),
    (JOB_SUCCESS, Gauge, Unit::Seconds, "When a job was last done, as far as is known here; Unix time"),
];

/// Tells a recorder what it may show beside the series.
pub(super) fn describe(recorder: &dyn Recorder) {
    for (name, kind, unit, text) in ALL {
        let (name, unit) = (KeyName::from_const_str(name), Some(unit));
        match kind {
            Counter => recorder.describe_counter(name, unit, text.into()),
            Gauge => recorder.describe_gauge(name, unit, text.into()),
            Histogram => recorder.describe_histogram(name, unit, text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use metrics::{Counter, Gauge, Histogram, Key, Metadata, SharedString, with_local_recorder};

    use super::*;
    use crate::Locks;
    use crate::system::lock;

    /// Notes the name, the kind and the unit of each series, as the guide writes them.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn note(&self, name: &KeyName, kind: &str, unit: Option<Unit>) {
            let unit = unit.expect("a unit").as_canonical_label();
            lock(&self.0).push(format!("`{}` {kind} {unit}", name.as_str()));
        }
    }

    impl Recorder for Told {
        fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
            self.note(&name, "counter", unit);
        }

        fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
            self.note(&name, "gauge", unit);
        }

        fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
            self.note(&name, "histogram", unit);
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn the_guide_lists_each_series_with_its_kind_and_unit() {
        let told = Told::default();
        drop(with_local_recorder(&told, Locks::in_memory));
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
        let guide = std::fs::read_to_string(guide).expect("the guide");
        let rows = guide.lines().filter(|line| line.starts_with("| `lockwell."));
        let mut listed: Vec<_> = rows
            .map(|row| row.split('|').skip(1).take(3).map(str::trim).collect::<Vec<_>>().join(" "))
            .collect();
        let mut told = lock(&told.0).clone();
        listed.sort_unstable();
        told.sort_unstable();
        assert_eq!(listed, told);
        assert_eq!(told.len(), ALL.len());
    }
}
