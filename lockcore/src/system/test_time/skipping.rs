//! A clock that skips the time in which its threads rest.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::{Sleep, TestTime};
use crate::Moment;
use crate::system::{lock, note_rest};

/// How long the thread that skips time waits if somebody is at work: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// How long it waits for a sleeper, at most, before it checks whether the clock is still used.
const IDLE: Duration = Duration::from_millis(20);

impl TestTime {
    /// It goes on with the machine's clock. When all its threads rest, it jumps to the time at which the next
    /// sleeper wakes up. So what takes time by waiting takes none, and what takes time by working takes as
    /// long as it does.
    ///
    /// The keeper is one of its threads, and every thread that [joins](Self::join). A jump while some other
    /// thread is at work is like a pause of the machine.
    pub(crate) fn skipping() -> Arc<Self> {
        let this = Arc::new(Self::new(0, true));
        let time = Arc::downgrade(&this);
        let governor = std::thread::Builder::new().name("lockwell-skip".into());
        let governor = governor.spawn(move || govern(&time)).expect("a thread");
        this.threads.set_governor(governor.thread().clone());
        this
    }

    pub(in crate::system) fn join(&self) {
        if self.goes_on {
            self.threads.join();
        }
    }

    pub(super) fn note_sleeper(&self) {
        if self.goes_on {
            self.threads.join();
            self.threads.wake_governor();
        }
    }

    fn next(&self) -> Option<Moment> {
        lock(&self.sleepers).wakers.first_key_value().map(|((until, _), _)| *until)
    }
}

fn govern(time: &Weak<TestTime>) {
    if let Some(time) = time.upgrade() {
        time.threads.add_keeper();
    }
    let mut pause = LOOK.0;
    loop {
        let Some(time) = time.upgrade() else { return };
        let Some(next) = time.next() else {
            time.threads.idle();
            if time.next().is_some() {
                continue;
            }
            drop(time);
            std::thread::park_timeout(IDLE);
            continue;
        };
        let left = next.since(time.now());
        if left.is_zero() {
            time.wake_due();
        } else if next != Moment::NEVER && time.threads.are_at_rest() && time.next() == Some(next) {
            time.advance(next.since(time.now()));
        } else {
            drop(time);
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LOOK.1);
            continue;
        }
        pause = LOOK.0;
    }
}

/// While there is one, no time is skipped.
pub(crate) struct Hold(Arc<TestTime>);

impl Hold {
    pub(in crate::system) fn new(time: &Arc<TestTime>) -> Self {
        time.threads.hold(1);
        Self(Arc::clone(time))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.threads.hold(-1);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a sleep, blocking the calling thread even if it is one of a runtime.
pub(in crate::system) fn block_on(mut sleep: Sleep<'_>) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    note_rest(true);
    while Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
    note_rest(false);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::system::rest_when_idle;
    use crate::{Clock, TestClock};

    const HOUR: Duration = Duration::from_secs(3_600);

    fn runtime(clock: &Clock) -> tokio::runtime::Runtime {
        let clock = clock.clone();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        rest_when_idle(&mut builder);
        builder.worker_threads(2).on_thread_start(move || clock.join()).enable_all().build().unwrap()
    }

    /// The time that some work takes, by the clock and by that of the machine.
    fn measured(clock: &Clock, work: impl FnOnce()) -> (Duration, Duration) {
        let (began, really) = (clock.now(), Moment::now());
        work();
        (clock.now().since(began), Moment::now().since(really))
    }

    #[test]
    fn a_rest_takes_no_time_and_wakes_in_its_order() {
        let clock = TestClock::skipping().clock();
        let runtime = runtime(&clock);
        let order = Arc::new(Mutex::new(Vec::new()));
        let sleeping = |hours: u32| {
            let (clock, order) = (clock.clone(), Arc::clone(&order));
            runtime.spawn(async move {
                clock.sleep(HOUR * hours).await;
                lock(&order).push(hours);
            })
        };
        let (passed, really) = measured(&clock, || {
            let hold = clock.hold();
            let sleepers = [sleeping(3), sleeping(1), sleeping(2)];
            drop(hold);
            for sleeper in sleepers {
                runtime.block_on(sleeper).unwrap();
            }
        });
        assert_eq!(*lock(&order), [1, 2, 3]);
        assert!(passed >= HOUR * 3 && really < HOUR, "{passed:?}, really {really:?}");
    }

    #[test]
    fn no_time_is_skipped_while_a_thread_is_at_work() {
        let clock = TestClock::skipping().clock();
        let runtime = runtime(&clock);
        let hold = clock.hold();
        let sleeper = runtime.spawn({
            let clock = clock.clone();
            async move { clock.sleep(HOUR).await }
        });
        let works = runtime.spawn({
            let clock = clock.clone();
            async move {
                let (began, really) = (clock.now(), Moment::now());
                drop(hold);
                while Moment::now().since(really) < Duration::from_millis(50) {}
                clock.now().since(began)
            }
        });
        let passed = runtime.block_on(works).unwrap();
        assert!(passed < HOUR, "{passed:?}");
        runtime.block_on(sleeper).unwrap();
    }

    #[test]
    fn a_blocked_thread_rests() {
        let clock = TestClock::skipping().clock();
        let (passed, really) = measured(&clock, || clock.block(HOUR));
        assert!(passed >= HOUR && really < HOUR, "{passed:?}, really {really:?}");
    }
}
