//! A `tracing` subscriber that blocks is the application's trouble, not that of its locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockwell_core::{Locks, Moment};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::{alone, odd};

/// How many events have met the subscriber.
static MET: AtomicUsize = AtomicUsize::new(0);

/// The target of events that nobody wants, and how often somebody has asked about one.
const OFF: &str = "switched-off";
static ASKED: AtomicUsize = AtomicUsize::new(0);

struct Blocks;

impl Subscriber for Blocks {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.target() == OFF { Interest::never() } else { Interest::sometimes() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        if metadata.target() == OFF {
            ASKED.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        MET.fetch_add(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_subscriber_that_blocks_costs_no_lock() {
    alone("blocked_subscriber::a_subscriber_that_blocks_costs_no_lock", async {
        tracing::subscriber::set_global_default(Blocks).unwrap();
        let locks = Locks::new(Arc::<odd::Odd>::default()).unwrap();
        // Longer than a busy machine leaves a process without its processor.
        let ttl = Duration::from_secs(5);
        let kept = locks.lock("kept").ttl(ttl).await.unwrap();
        // Every failed renewal of this one is an event.
        let _doubtful = locks.lock(odd::DOUBTFUL).ttl(ttl).await.unwrap();
        let end = Moment::now().after(ttl * 3);
        while !end.has_passed() {
            assert!(kept.is_held(), "lost: {:?}", locks.stats());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(MET.load(Ordering::SeqCst) > 0, "no event was emitted");
        // What is switched off costs no more beside a client than without one.
        for number in 0..1000 {
            tracing::info!(target: OFF, number);
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 0);
    });
}
