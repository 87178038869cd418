//! A recorder of metrics that panics or blocks is the application's trouble, not that of its locks, and its
//! gauges are right afterwards.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwell_core::{LockGuard, Locks, Moment};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

use crate::{alone, odd};

/// How many calls have met the recorder.
static MET: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicBool = AtomicBool::new(false);

/// The number of held locks, as the recorder shows it.
static HELD: Mutex<f64> = Mutex::new(0.0);

/// How often the log has said that calls were dropped.
static TOLD: AtomicUsize = AtomicUsize::new(0);

struct Hostile;

/// The counter of renewals, which belong to the background.
struct Renewals;

impl CounterFn for Renewals {
    fn increment(&self, by: u64) {
        if by == 0 {
            return;
        }
        MET.fetch_add(1, Ordering::SeqCst);
        while BLOCKS.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("as the test wants it");
    }

    fn absolute(&self, _: u64) {}
}

/// The gauge of held locks.
struct Held;

impl GaugeFn for Held {
    fn increment(&self, by: f64) {
        *HELD.lock().unwrap() += by;
    }

    fn decrement(&self, by: f64) {
        *HELD.lock().unwrap() -= by;
    }

    fn set(&self, number: f64) {
        *HELD.lock().unwrap() = number;
    }
}

impl Recorder for Hostile {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "lockwell.renewals" {
            Counter::from_arc(Arc::new(Renewals))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == "lockwell.held" { Gauge::from_arc(Arc::new(Held)) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Counts the events that say how many calls were dropped.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().ends_with("::recorder") && metadata.fields().field("lockwell.dropped").is_some()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        TOLD.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

async fn are_kept(held: &[LockGuard], span: Duration) {
    let met = MET.load(Ordering::SeqCst);
    let end = Moment::now().after(span);
    while !end.has_passed() {
        assert!(held.iter().all(LockGuard::is_held), "lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(MET.load(Ordering::SeqCst) > met, "nothing was recorded");
}

#[test]
fn a_recorder_that_panics_or_blocks_costs_no_lock() {
    alone("hostile_recorder::a_recorder_that_panics_or_blocks_costs_no_lock", async {
        tracing::subscriber::set_global_default(Log).unwrap();
        let locks = Locks::new(Arc::<odd::Odd>::default()).unwrap();
        let early = locks.lock("before there is a recorder").await.unwrap();
        metrics::set_global_recorder(Hostile).unwrap();
        std::panic::set_hook(Box::new(|_| ()));
        let ttl = Duration::from_millis(1500);
        let mut held = Vec::new();
        for name in 0..100 {
            held.push(locks.lock(name.to_string()).ttl(ttl).await.unwrap());
        }
        are_kept(&held, ttl * 2).await;
        BLOCKS.store(true, Ordering::SeqCst);
        are_kept(&held, ttl * 2).await;

        // Each loss is several calls, of which 4,096 wait for the recorder.
        let names: Vec<_> = (0..5000).map(|number| format!("lost {number}")).collect();
        for name in &names {
            held.push(locks.lock(name.as_str()).ttl(ttl).await.unwrap());
        }
        for name in &names {
            locks.force_release(name.as_str()).await.unwrap();
        }
        let end = Moment::now().after(Duration::from_secs(60));
        while held[100..].iter().any(LockGuard::is_held) {
            assert!(!end.has_passed(), "nobody notices the losses");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The thread for the log catches up.
        tokio::time::sleep(Duration::from_secs(1)).await;
        BLOCKS.store(false, Ordering::SeqCst);
        drop((held, early));
        let shown = || HELD.lock().unwrap().to_string();
        while shown() != "0" || TOLD.load(Ordering::SeqCst) == 0 {
            assert!(!end.has_passed(), "{} are held; told {TOLD:?} times", shown());
            // The next change makes good what was dropped.
            locks.lock("next").await.unwrap().release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
