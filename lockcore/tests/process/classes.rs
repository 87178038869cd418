//! The metrics of requests with a class, and how many classes a process tells apart.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockwell_core::{ErrorKind, LockConfig, LockGuard, Locks, MemoryLock, Moment};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Label, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};

use crate::alone;

const LONG: Duration = Duration::from_secs(60);

/// What a recorder shows: the values of counters and gauges, and the number of those in a histogram, by the
/// name of the series and all labels but the backend.
static SHOWN: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

fn shown() -> MutexGuard<'static, BTreeMap<String, f64>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a series. None: the recorder has not heard of it.
fn number(series: &str) -> Option<u64> {
    shown().get(series).map(|number| format!("{number}").parse().expect("a count"))
}

/// Waits for what the keeper does in the background.
async fn becomes(series: &str, wanted: u64) {
    let end = Moment::now().after(LONG);
    while number(series) != Some(wanted) {
        assert!(!end.has_passed(), "{series} is {:?}, not {wanted}", number(series));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct Series(String);

impl Series {
    fn of(key: &Key) -> Arc<Self> {
        let labels = key.labels().filter(|label| label.key() != "backend").map(Label::value);
        let series = format!("{}{{{}}}", key.name(), labels.collect::<Vec<_>>().join(","));
        shown().entry(series.clone()).or_default();
        Arc::new(Self(series))
    }

    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(shown().entry(self.0.clone()).or_default());
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.change(|number| *number += f64::from(u32::try_from(by).expect("few")));
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.change(|number| *number += by);
    }

    fn decrement(&self, by: f64) {
        self.change(|number| *number -= by);
    }

    fn set(&self, to: f64) {
        self.change(|number| *number = to);
    }
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.change(|number| *number += 1.0);
    }
}

struct Shows;

impl Recorder for Shows {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::of(key))
    }
}

fn install() {
    metrics::set_global_recorder(Shows).expect("it is the only one");
}

/// The lock of a request that waits while this guard is dropped, and whether it was passed on to it.
async fn after(guard: LockGuard, locks: &Locks, class: &str) -> (LockGuard, bool) {
    let before = guard.grant().claim().owner();
    let next = tokio::spawn(locks.lock(guard.name().clone()).class(class).into_future());
    becomes(&format!("lockwell.waiters{{{class}}}"), 1).await;
    drop(guard);
    let next = next.await.expect("no panic").expect("its turn comes");
    becomes(&format!("lockwell.waiters{{{class}}}"), 0).await;
    let is_passed_on = next.grant().claim().owner() == before;
    (next, is_passed_on)
}

#[test]
fn each_request_counts_for_its_class() {
    alone("classes::each_request_counts_for_its_class", async {
        install();
        let locks = Locks::in_memory().hand_off(1000, LONG);
        let request = locks.lock("a").class("orders");
        let zero = ["acquires{orders,granted}", "losses{orders,taken}", "waiters{orders}", "held{orders}"];
        for series in zero {
            assert_eq!(number(&format!("lockwell.{series}")), Some(0), "{series}");
        }
        let mut guard = request.await.unwrap();
        assert_eq!(number("lockwell.acquires{orders,granted}"), Some(1));
        assert_eq!(number("lockwell.acquire.duration{orders,granted}"), Some(1));
        assert_eq!(number("lockwell.held{orders}"), Some(1));
        assert_eq!(number("lockwell.held{}"), Some(0));
        assert!(locks.lock("a").class("reports").try_now().await.unwrap().is_none());
        assert!(locks.lock("a").try_now().await.unwrap().is_none());
        assert_eq!(number("lockwell.acquires{reports,held}"), Some(1));
        assert_eq!(number("lockwell.acquires{held}"), Some(1));

        // A lock that is passed on has the claim of the first, and the class of the next.
        let mut is_passed_on = false;
        while !is_passed_on {
            (guard, _) = after(guard, &locks, "orders").await;
            (guard, is_passed_on) = after(guard, &locks, "reports").await;
            assert_eq!(
                (number("lockwell.held{orders}"), number("lockwell.held{reports}")),
                (Some(0), Some(1))
            );
        }
        let ended = number("lockwell.hold.duration{orders,released}");
        assert_eq!(ended, number("lockwell.acquires{orders,granted}"));
        let guard = guard.downgrade().await.unwrap();
        assert_eq!(number("lockwell.held{reports}"), Some(1), "a reader has the class of the writer");
        locks.force_release("a").await.unwrap();
        guard.lost().await;
        becomes("lockwell.losses{reports,taken}", 1).await;
        becomes("lockwell.hold.duration{reports,lost}", 1).await;
        becomes("lockwell.held{reports}", 0).await;
        assert_eq!(number("lockwell.losses{orders,taken}"), Some(0));
        assert_eq!(number("lockwell.hold.duration{released}"), None, "all had a class");
    });
}

#[test]
fn all_kinds_of_requests_have_a_class() {
    alone("classes::all_kinds_of_requests_have_a_class", async {
        install();
        let config = LockConfig::new("memory://?class=default");
        let (_, config) = config.resolve().unwrap();
        let locks = Locks::with_config(Arc::new(MemoryLock::new()), &config).unwrap();
        let guard = locks.lock("a").await.unwrap();
        assert_eq!(number("lockwell.held{default}"), Some(1));
        // Another client of the process has the same series.
        let other = Locks::in_memory();
        let others = other.lock("a").class("default").await.unwrap();
        assert_eq!(number("lockwell.held{default}"), Some(2));
        drop((guard, others));
        assert_eq!(number("lockwell.held{default}"), Some(0));

        let all = locks.lock_all(["b", "c"]).class("several").await.unwrap();
        assert_eq!(number("lockwell.acquires{several,granted}"), Some(2));
        assert_eq!(number("lockwell.held{several}"), Some(2));
        all.release().await.unwrap();
        // One after the other, since the second one is not free at once.
        let held = other.lock("c").await.unwrap();
        let waits = tokio::spawn(other.lock_all(["b", "c"]).class("several").into_future());
        becomes("lockwell.waiters{several}", 1).await;
        drop(held);
        drop(waits.await.unwrap().unwrap());
        assert_eq!(number("lockwell.held{several}"), Some(0));

        // The second guard of an owner is no acquire, and the same hold.
        let owner = locks.owner();
        let first = owner.lock("d").class("outer").await.unwrap();
        let second = owner.lock("d").class("inner").await.unwrap();
        assert_eq!((number("lockwell.held{outer}"), number("lockwell.held{inner}")), (Some(1), Some(0)));
        drop(first);
        second.release().await.unwrap();
        assert_eq!(number("lockwell.acquires{inner,granted}"), Some(0));
        assert_eq!(number("lockwell.hold.duration{outer,released}"), Some(1));

        drop(locks.campaign("e").class("leader").await.unwrap());
        assert_eq!(number("lockwell.acquires{leader,granted}"), Some(1));
        let work = async |_| Ok::<_, lockwell_core::Error>(());
        drop(locks.once("f", "key").class("nightly").try_run(work).await.unwrap());
        assert_eq!(number("lockwell.acquires{nightly,granted}"), Some(1));
        assert_eq!(number("lockwell.acquires{default,granted}"), Some(2), "no other request had it");
    });
}

/// Counts the warnings of too many names.
struct Log;

static WARNED: AtomicUsize = AtomicUsize::new(0);

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().ends_with("::names")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        WARNED.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_number_of_classes_of_a_process_is_limited() {
    alone("classes::the_number_of_classes_of_a_process_is_limited", async {
        tracing::subscriber::set_global_default(Log).unwrap();
        install();
        let clients = [Locks::in_memory(), Locks::in_memory()];
        // Who calls a class so means the same as the process.
        let mut held = vec![clients[0].lock("other").class("other").await.unwrap()];
        for round in 0..2 {
            for class in 0..105 {
                let request = clients[class % 2].lock(format!("{round}/{class}"));
                held.push(request.class(format!("class-{class}")).await.unwrap());
                assert_eq!(WARNED.load(Ordering::SeqCst), usize::from(round > 0 || class >= 100));
            }
        }
        assert_eq!(number("lockwell.held{other}"), Some(11));
        assert_eq!(number("lockwell.held{class-99}"), Some(2));
        assert_eq!(number("lockwell.held{class-100}"), None);
        let classes = shown().keys().filter(|series| series.starts_with("lockwell.held{")).count();
        assert_eq!(classes, 102, "a hundred, the others, and none");
        drop(held);
        assert_eq!(number("lockwell.held{other}"), Some(0));
    });
}

#[test]
fn what_is_no_class_is_refused() {
    alone("classes::what_is_no_class_is_refused", async {
        install();
        let locks = Locks::in_memory();
        for class in ["", "a\nb", "\"", "a b", "{}", "bücher"] {
            let refused = [
                locks.lock("a").class(class).await.err(),
                locks.lock("a").class(class).try_now().await.err(),
                locks.lock_all(["a"]).class(class).await.err(),
                locks.lock_all(Vec::<&str>::new()).class(class).try_now().await.err(),
                locks.owner().lock("a").class(class).await.err(),
                locks.campaign("a").class(class).try_now().await.err(),
            ];
            for error in refused {
                assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidInput), "{class:?}");
            }
            let config = LockConfig::new("memory://").class(class);
            let error = Locks::with_config(Arc::new(MemoryLock::new()), &config).err();
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidInput), "{class:?}");
        }
        drop(locks.lock("a").class("").class("orders").await.expect("the last one counts"));
        let classes = shown().keys().filter(|series| series.starts_with("lockwell.held{")).count();
        assert_eq!(classes, 2, "none, and orders");
    });
}

#[test]
fn a_recorder_that_comes_later_shows_what_is_held() {
    alone("classes::a_recorder_that_comes_later_shows_what_is_held", async {
        let locks = Locks::in_memory();
        let early = locks.lock("a").class("orders").await.unwrap();
        install();
        let late = locks.lock("b").class("orders").await.unwrap();
        assert_eq!(number("lockwell.held{orders}"), Some(2));
        assert_eq!(number("lockwell.acquires{orders,granted}"), Some(1));
        drop((early, late));
        assert_eq!(number("lockwell.held{orders}"), Some(0));
    });
}
