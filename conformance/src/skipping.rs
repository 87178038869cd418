//! A clock that skips the time in which its threads rest.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use lockwell_core::suite::ClockThreads;
use lockwell_core::{Clock, Moment, TestClock};

use crate::hooks;
use crate::rest::note_rest;
use crate::threads::Threads;

/// How long the thread that skips time waits if somebody is at work: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(1));
/// How long it waits for a sleeper, at most, before it checks whether the clock is still used.
const IDLE: Duration = Duration::from_millis(20);

/// It goes on with the machine's clock. When all its threads rest, it jumps to the time at which the next
/// sleeper wakes up. So what takes time by waiting takes none, and what takes time by working takes as long
/// as it does.
///
/// The keeper is one of its threads, and every thread that [joins](join). A jump while some other thread is
/// at work is like a pause of the machine.
pub(crate) fn skipping() -> Clock {
    // Before the keeper starts, so that its thread says when it rests.
    hooks::set();
    let threads = Arc::new(Threads::default());
    let test = TestClock::with_threads(threads.clone());
    let clock = test.clock();
    let governor = std::thread::Builder::new().name("lockwell-skip".into());
    let governed = threads.clone();
    let governor = governor.spawn(move || govern(&test, &governed)).expect("a thread");
    threads.set_governor(governor.thread().clone());
    clock
}

/// Whether it is the clock of the machine.
pub(crate) fn is_system(clock: &Clock) -> bool {
    TestClock::of(clock).is_none()
}

fn threads(clock: &Clock) -> Option<Arc<dyn ClockThreads>> {
    TestClock::of(clock)?.threads()
}

/// From now on the calling thread is one of those that must rest before time is skipped.
pub(crate) fn join(clock: &Clock) {
    if let Some(threads) = threads(clock) {
        threads.join();
    }
}

fn govern(clock: &TestClock, threads: &Threads) {
    threads.add_keeper();
    let now = || clock.clock().now();
    let mut pause = LOOK.0;
    while clock.is_shared() {
        let Some(next) = clock.next_sleeper() else {
            threads.idle();
            if clock.next_sleeper().is_none() {
                std::thread::park_timeout(IDLE);
            }
            continue;
        };
        let left = next.since(now());
        if left.is_zero() {
            clock.wake_due();
        } else if next != Moment::NEVER && threads.are_at_rest() && clock.next_sleeper() == Some(next) {
            clock.advance(next.since(now()));
        } else {
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LOOK.1);
            continue;
        }
        pause = LOOK.0;
    }
}

/// While there is one, no time is skipped.
pub(crate) struct Hold(Arc<dyn ClockThreads>);

impl Hold {
    pub(crate) fn of(clock: &Clock) -> Option<Self> {
        let threads = threads(clock)?;
        threads.hold(1);
        Some(Self(threads))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.hold(-1);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the calling thread for this time, even if it is one of a runtime. It counts as resting meanwhile.
pub(crate) fn block(clock: &Clock, span: Duration) {
    if is_system(clock) {
        return std::thread::sleep(span);
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut sleep = pin!(clock.sleep(span));
    note_rest(true);
    while sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
    note_rest(false);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::Mutex;

    use lockwell_core::backend::lock;

    use super::*;
    use crate::rest::rest_when_idle;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn runtime(clock: &Clock) -> tokio::runtime::Runtime {
        let clock = clock.clone();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        rest_when_idle(&mut builder);
        builder.worker_threads(2).on_thread_start(move || join(&clock)).enable_all().build().unwrap()
    }

    /// The time that some work takes, by the clock and by that of the machine.
    fn measured(clock: &Clock, work: impl FnOnce()) -> (Duration, Duration) {
        let (began, really) = (clock.now(), Moment::now());
        work();
        (clock.now().since(began), Moment::now().since(really))
    }

    #[test]
    fn a_rest_takes_no_time_and_wakes_in_its_order() {
        let clock = skipping();
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
            let hold = Hold::of(&clock);
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
        let clock = skipping();
        let runtime = runtime(&clock);
        let hold = Hold::of(&clock);
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
        let clock = skipping();
        let (passed, really) = measured(&clock, || block(&clock, HOUR));
        assert!(passed >= HOUR && really < HOUR, "{passed:?}, really {really:?}");
    }
}
