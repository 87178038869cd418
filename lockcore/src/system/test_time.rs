//! The time of a clock for tests, and who sleeps by it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::hooks::ClockThreads;
use super::{Moment, lock};

/// The time of a [`TestClock`](super::TestClock).
pub(super) struct TestTime {
    /// It stands still: nanoseconds of the clock. It goes on: the nanoseconds by which it is ahead of the
    /// machine's.
    nanos: AtomicU64,
    /// Those that it goes on for. `None`: it stands still.
    threads: Option<Arc<dyn ClockThreads>>,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    last: u64,
    /// Who is woken when, with a number for those that wake at one time.
    wakers: BTreeMap<(Moment, u64), Waker>,
}

impl TestTime {
    pub(super) fn standing() -> Arc<Self> {
        let nanos = AtomicU64::new(Moment::now().as_nanos());
        Arc::new(Self { nanos, threads: None, sleepers: Mutex::default() })
    }

    pub(super) fn going_on(threads: Arc<dyn ClockThreads>) -> Arc<Self> {
        Arc::new(Self { nanos: AtomicU64::new(0), threads: Some(threads), sleepers: Mutex::default() })
    }

    pub(super) fn threads(&self) -> Option<&Arc<dyn ClockThreads>> {
        self.threads.as_ref()
    }

    pub(super) fn now(&self) -> Moment {
        let nanos = self.nanos.load(Ordering::SeqCst);
        if self.goes_on() {
            Moment::now().after(Duration::from_nanos(nanos))
        } else {
            Moment::from_nanos(nanos)
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        self.threads.is_some()
    }

    pub(super) fn next_sleeper(&self) -> Option<Moment> {
        lock(&self.sleepers).wakers.first_key_value().map(|((until, _), _)| *until)
    }

    pub(super) fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        {
            let _one_at_a_time = lock(&self.sleepers);
            let now = self.nanos.load(Ordering::SeqCst);
            self.nanos.store(now.saturating_add(nanos), Ordering::SeqCst);
        }
        self.wake_due();
    }

    pub(super) fn wake_due(&self) {
        let due = {
            let mut sleepers = lock(&self.sleepers);
            // Read under the lock: one that comes later sees this time, too.
            let later = sleepers.wakers.split_off(&(self.now(), u64::MAX));
            std::mem::replace(&mut sleepers.wakers, later)
        };
        due.into_values().for_each(Waker::wake);
    }
}

/// A sleep by the clock of a test.
pub(super) struct Sleep<'a> {
    time: &'a TestTime,
    until: Moment,
    number: Option<u64>,
}

impl<'a> Sleep<'a> {
    pub(super) fn new(time: &'a TestTime, until: Moment) -> Self {
        Self { time, until, number: None }
    }
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let mut sleepers = lock(&self.time.sleepers);
        if self.time.now() >= self.until {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            sleepers.last += 1;
            sleepers.last
        });
        let old = sleepers.wakers.insert((self.until, number), waker);
        drop(sleepers);
        // Not under the lock: with its last waker a task is dropped, and its sleeps with it.
        drop(old);
        if let Some(threads) = &self.time.threads {
            threads.note_sleeper();
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = lock(&self.time.sleepers).wakers.remove(&(self.until, number));
            drop(waker);
        }
    }
}
