//! A recorder of metrics that panics or blocks is the application's trouble, not that of its locks. A program
//! of its own, since a process has one recorder.
#![cfg(feature = "metrics")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockwell_core::{LockGuard, Locks, Moment};
use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// How many calls have met the recorder.
static MET: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicBool = AtomicBool::new(false);

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
            std::thread::park();
        }
        panic!("as the test wants it");
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Hostile {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == "lockwell_renewals_total" {
            Counter::from_arc(Arc::new(Renewals))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
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

#[tokio::test]
async fn a_recorder_that_panics_or_blocks_costs_no_lock() {
    metrics::set_global_recorder(Hostile).unwrap();
    std::panic::set_hook(Box::new(|_| ()));
    let locks = Locks::new(Arc::<support::Odd>::default()).unwrap();
    let ttl = Duration::from_millis(1500);
    let mut held = Vec::new();
    for name in 0..100 {
        held.push(locks.lock(name.to_string()).ttl(ttl).await.unwrap());
    }
    are_kept(&held, ttl * 2).await;
    BLOCKS.store(true, Ordering::SeqCst);
    are_kept(&held, ttl * 2).await;
}
