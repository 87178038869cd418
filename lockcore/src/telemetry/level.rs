//! The numbers behind gauges.
//!
//! A recorder may be installed late, may forget a series that was idle, and may be so slow that calls to it
//! are dropped. If it were told changes, each of these would leave a wrong number for good. So the number is
//! kept here, and each change tells the recorder the whole of it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::{Arc, Mutex};

use metrics::Gauge;

use crate::contract::Class;
use crate::system::{PerProcess, lock};

/// By the name of the series, the backend and the class.
type Levels = Mutex<BTreeMap<(&'static str, &'static str, Class), Arc<Level>>>;

/// How often one task shows the numbers of others.
const ROUNDS: u32 = 16;

/// The number of a gauge.
#[derive(Debug, Default)]
pub(super) struct Level {
    number: AtomicI32,
    /// Nobody shows the number if this is 0. Otherwise one thread does, and the others have come meanwhile.
    shown_for: AtomicU32,
}

impl Level {
    /// The one of a series. The clients of a backend share it, as they share the series.
    pub(super) fn of(series: &'static str, backend: &'static str, class: Class) -> Arc<Self> {
        static LEVELS: PerProcess<Arc<Levels>> = PerProcess::new();
        let levels = LEVELS.get_or_init(Arc::default);
        Arc::clone(lock(&levels).entry((series, backend, class)).or_default())
    }

    /// Changes the number, which is to be shown then.
    pub(super) fn add(&self, by: i32) {
        self.number.fetch_add(by, SeqCst);
    }

    /// Tells the recorder what the number is.
    ///
    /// Two that do so at a time could leave the older number behind, and the recorder is not called under a
    /// mutex. So whoever finds another one at it leaves it to that one, which looks again when it has ended.
    /// `false`: others have changed the number again and again, and it is to be shown once more.
    pub(super) fn show(&self, gauge: impl Fn() -> Gauge) -> bool {
        for _ in 0..ROUNDS {
            if self.shown_for.fetch_add(1, SeqCst) != 0 {
                return true;
            }
            let turn = Turn(&self.shown_for);
            gauge().set(self.number.load(SeqCst));
            if turn.end() == 1 {
                return true;
            }
        }
        false
    }
}

/// The turn of the one that shows a number. A recorder that panics ends it as well.
struct Turn<'a>(&'a AtomicU32);

impl Turn<'_> {
    /// Returns how many have come until now.
    fn end(self) -> u32 {
        let came = self.0.swap(0, SeqCst);
        std::mem::forget(self);
        came
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use metrics::GaugeFn;

    use super::*;

    /// What a recorder shows. It panics at 13.
    #[derive(Default)]
    struct Shown(Mutex<String>);

    impl GaugeFn for Shown {
        fn increment(&self, _: f64) {
            unreachable!("it is told the number");
        }

        fn decrement(&self, _: f64) {
            unreachable!("it is told the number");
        }

        fn set(&self, number: f64) {
            // Others come meanwhile.
            std::thread::yield_now();
            let number = number.to_string();
            assert_ne!(number, "13", "as the test wants it");
            *lock(&self.0) = number;
        }
    }

    #[test]
    fn the_last_number_is_shown() {
        let (level, shown) =
            (Level::of("series", "of threads", Class::default()), Arc::new(Shown::default()));
        let gauge = Gauge::from_arc(Arc::clone(&shown));
        for round in 1..50 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for by in [100, -100, 100, -100, 100] {
                            level.add(by);
                            while !level.show(|| gauge.clone()) {}
                        }
                    });
                }
            });
            assert_eq!(*lock(&shown.0), (round * 400).to_string());
        }
    }

    #[test]
    fn a_number_outlives_its_clients_and_recorders() {
        let level = |backend| Level::of("series", backend, Class::default());
        level("a").add(2);
        level("b").add(1);
        let (shown, late) = (Arc::new(Shown::default()), Arc::new(Shown::default()));
        let show = |shown: &Arc<Shown>| level("a").show(|| Gauge::from_arc(Arc::clone(shown)));
        assert!(show(&shown));
        level("a").add(11);
        assert!(catch_unwind(AssertUnwindSafe(|| show(&shown))).is_err());
        level("a").add(-1);
        assert!(show(&late));
        assert_eq!((&**lock(&shown.0), &**lock(&late.0)), ("2", "12"));
    }
}
