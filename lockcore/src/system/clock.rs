//! The clock of a client, and its sleeps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Moment;
use super::hooks::ClockThreads;
use super::test_time::{Sleep, TestTime};
use crate::system::KEEPER;

/// The longest sleep in one piece: the timers of a runtime stand still during suspend.
const PIECE: Duration = Duration::from_secs(1);

/// The clock of a client: the machine's boot clock or, in tests, a [`TestClock`].
///
/// A backend provides the clock ([`DistributedLock::clock`](crate::DistributedLock::clock)) for the leases,
/// waits and renewals of its locks.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<TestTime>>);

impl Clock {
    /// The machine's boot clock.
    pub const fn system() -> Self {
        Self(None)
    }

    /// The time now.
    pub fn now(&self) -> Moment {
        match &self.0 {
            None => Moment::now(),
            Some(test) => test.now(),
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it is a clock for tests that does not go on by itself.
    pub(crate) fn stands_still(&self) -> bool {
        self.0.as_ref().is_some_and(|test| !test.goes_on())
    }

    /// A limit that begins now. Where this clock stands still, the machine's clock ends it as well.
    pub(crate) fn limit(&self, span: Duration) -> TimeLimit {
        let machine = self.stands_still().then(|| Moment::now().after(span));
        TimeLimit { clock: self.clone(), until: self.now().after(span), machine }
    }

    /// Whether this moment has passed.
    pub fn has_passed(&self, moment: Moment) -> bool {
        self.now() >= moment
    }

    /// Sleeps until this moment. After a suspend of the machine it wakes at most a second late.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn sleep_until(&self, until: Moment) {
        match &self.0 {
            None => sleep_system(until).await,
            Some(test) => Sleep::new(test, until).await,
        }
    }

    /// Sleeps for this time.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now().after(span)).await;
    }

    /// Waits for a future until this moment; `None` if it is not ready by then.
    pub async fn timeout_at<T>(&self, until: Moment, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = self.sleep_until(until) => None,
        }
    }

    /// Waits for a future for this time; `None` if it is not ready by then.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.timeout_at(self.now().after(limit), future).await
    }
}

/// The time within which something must be done that nobody moves the clock of a test for.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    clock: Clock,
    until: Moment,
    machine: Option<Moment>,
}

impl TimeLimit {
    /// Waits for a future within the limit; `None` if it is not ready by then.
    pub(crate) async fn wait_for<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let machine = async {
            match self.machine {
                Some(until) => until.sleep().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            value = future => Some(value),
            () = self.clock.sleep_until(self.until) => None,
            () = machine => None,
        }
    }
}

impl Moment {
    /// Sleeps until this moment, by the machine's clock.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn sleep(self) {
        Clock::system().sleep_until(self).await;
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Clock(test)" } else { "Clock(system)" })
    }
}

/// Sleeps by the timers of the runtime, as long as they agree with the machine's clock.
///
/// A runtime whose clock is paused, by `#[tokio::test(start_paused = true)]`, lets its timers fire at once
/// when there is no other work. Setting such a timer again and again would be a busy loop that moves the
/// paused clock by hours. So after the first one that fires early, the keeper's timers are used instead.
async fn sleep_system(until: Moment) {
    let mut runs_ahead = false;
    loop {
        let began = Moment::now();
        let piece = until.since(began).min(PIECE);
        if piece.is_zero() {
            return;
        }
        match runs_ahead.then(|| KEEPER.get()) {
            // The timer is made there, since it belongs to the runtime that makes it.
            Some(Ok(keeper)) => drop(keeper.spawn(async move { tokio::time::sleep(piece).await }).await),
            _ => tokio::time::sleep(piece).await,
        }
        runs_ahead |= Moment::now().since(began) < piece;
    }
}

/// A clock that stands still until a test moves it.
///
/// ```
/// # use lockwell_core as lockwell;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockwell::Result<()> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use lockwell::backend::MemoryLock;
/// use lockwell::testing::TestClock;
/// use lockwell::{Locks, Loss};
///
/// let clock = TestClock::new();
/// let locks = Locks::new(Arc::new(MemoryLock::with_clock(clock.clock())))?;
/// let guard = locks.lock("orders/42").ttl(Duration::from_secs(3_600)).await?;
/// clock.advance(Duration::from_secs(600));
/// assert!(guard.is_held());
/// // Longer than the lease: as if the machine had been suspended.
/// clock.advance(Duration::from_secs(3_600));
/// assert_eq!(guard.lost().await, Loss::Expired);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TestClock(Arc<TestTime>);

impl TestClock {
    /// A clock that shows some time.
    pub fn new() -> Self {
        Self(TestTime::standing())
    }

    /// A clock that goes on with the machine's, and tells these threads about its sleepers.
    #[doc(hidden)]
    pub fn with_threads(threads: Arc<dyn ClockThreads>) -> Self {
        Self(TestTime::going_on(threads))
    }

    /// The threads of such a clock.
    #[doc(hidden)]
    pub fn threads(&self) -> Option<Arc<dyn ClockThreads>> {
        self.0.threads().cloned()
    }

    /// The clock for tests that this is. `None`: it is that of the machine.
    #[doc(hidden)]
    pub fn of(clock: &Clock) -> Option<Self> {
        clock.0.clone().map(Self)
    }

    /// When the next sleeper wakes up.
    #[doc(hidden)]
    pub fn next_sleeper(&self) -> Option<Moment> {
        self.0.next_sleeper()
    }

    /// Wakes the sleepers whose time has come without a call of [`advance`](Self::advance).
    #[doc(hidden)]
    pub fn wake_due(&self) {
        self.0.wake_due();
    }

    /// Whether anybody else has this clock.
    #[doc(hidden)]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The clock for the backend under test.
    pub fn clock(&self) -> Clock {
        Clock(Some(Arc::clone(&self.0)))
    }

    /// Moves the clock forward. Tasks that sleep until then wake up; they run when the test awaits something.
    ///
    /// A renewal is due after a third of a lease. A step over the whole lease ends it, like a pause of the
    /// machine.
    pub fn advance(&self, span: Duration) {
        self.0.advance(span);
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestClock").field(&self.0.now()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_runtime_does_not_make_sleep_spin() {
        let (began, ticks) = (Moment::now(), tokio::time::Instant::now());
        let span = Duration::from_millis(300);
        Clock::system().sleep(span).await;
        assert!(Moment::now().since(began) >= span);
        assert!(ticks.elapsed() <= PIECE, "the paused clock moved by {:?}", ticks.elapsed());
    }

    #[tokio::test]
    async fn a_test_moves_its_clock() {
        let test = TestClock::new();
        let clock = test.clock();
        let hour = Duration::from_secs(3_600);
        let sleeping = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(hour).await }
        });
        tokio::task::yield_now().await;
        test.advance(hour / 2);
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        test.advance(hour / 2);
        sleeping.await.unwrap();
        assert_eq!(clock.timeout(hour, std::future::ready(1)).await, Some(1));
    }

    #[tokio::test]
    async fn sleep_is_never_early() {
        let until = Moment::now().after(Duration::from_millis(20));
        until.sleep().await;
        assert!(until.has_passed());
    }
}
