//! One held lock, shared by its guard and the keeper.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Advice, Event, Lease, Left, Limits};
use crate::system::{lock, unless_panics, wake_tasks};
use crate::telemetry::{Since, Telemetry};
use crate::{Clock, Error, ErrorKind, Grant, LeaseState, Moment};

/// One held lock: its grant, and the state of its lease.
#[derive(Debug)]
pub(crate) struct HeldLock {
    grant: Grant,
    telemetry: Arc<Telemetry>,
    /// When the hold began.
    since: Since,
    lease: Mutex<Lease>,
    /// A copy of the lease's deadline, zero once the lock is lost or released: `is_held` loads it and reads
    /// the clock.
    valid_until: AtomicU64,
    /// The index in the keeper's table.
    slot: AtomicUsize,
    /// The largest batch in which it is renewed.
    batch_limit: AtomicUsize,
    /// When the first renewal was sent of those in a row that have failed.
    failed_since: AtomicU64,
    changed: Notify,
    /// Why the last renewal failed; none if it succeeded.
    failure: Mutex<Option<String>>,
    /// When the lease is due for the first time.
    first_due: Moment,
}

/// The result of an event: what to do next, and the new state if that has changed.
pub(crate) type Step = (Advice, Option<LeaseState>);

/// The error of a loss while work was going on, with the failure of the last renewal, if it failed.
pub(crate) fn lost_at_work(failure: Option<String>) -> Error {
    let error = Error::new(ErrorKind::Lost, "the lock was lost while the work was going on");
    match failure {
        Some(why) => error.with_source(format!("the last renewal failed: {why}")),
        None => error,
    }
}

impl HeldLock {
    pub(crate) fn new(grant: Grant, limits: Limits, telemetry: &Arc<Telemetry>) -> Self {
        let mut lease = Lease::new(grant.sent(), grant.deadline());
        if grant.is_provisional() {
            lease = lease.provisional(grant.claim().clock().now());
        }
        if limits != Limits::default() {
            lease = lease.limited(grant.claim().clock().now(), limits);
        }
        Self {
            since: telemetry.granted(&grant),
            telemetry: Arc::clone(telemetry),
            first_due: lease.renew_at().min(lease.deadline()),
            valid_until: AtomicU64::new(lease.deadline().as_nanos()),
            lease: Mutex::new(lease),
            grant,
            slot: AtomicUsize::new(usize::MAX),
            batch_limit: AtomicUsize::new(usize::MAX),
            failed_since: AtomicU64::new(0),
            changed: Notify::new(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.grant.claim().clock()
    }

    /// A copy of the lease.
    pub(crate) fn lease(&self) -> Lease {
        *lock(&self.lease)
    }

    pub(crate) fn limits(&self) -> Limits {
        lock(&self.lease).limits()
    }

    /// Sets limits that count from now. The keeper must sweep again.
    pub(crate) fn limit(&self, limits: Limits) {
        let mut lease = lock(&self.lease);
        *lease = lease.limited(self.clock().now(), limits);
        if matches!(lease.state(), LeaseState::Held | LeaseState::Suspect) {
            self.valid_until.store(lease.deadline().as_nanos(), Ordering::Release);
        }
    }

    pub(crate) fn first_due(&self) -> Moment {
        self.first_due
    }

    pub(crate) fn slot(&self) -> &AtomicUsize {
        &self.slot
    }

    /// The largest batch in which it is renewed.
    pub(crate) fn batch_limit(&self) -> usize {
        self.batch_limit.load(Ordering::Relaxed)
    }

    pub(crate) fn set_batch_limit(&self, limit: usize) {
        self.batch_limit.store(limit, Ordering::Relaxed);
    }

    /// When the first renewal was sent of those in a row that have failed.
    pub(crate) fn failed_since(&self) -> Moment {
        Moment::from_nanos(self.failed_since.load(Ordering::Relaxed))
    }

    pub(crate) fn set_failed_since(&self, sent: Moment) {
        self.failed_since.store(sent.as_nanos(), Ordering::Relaxed);
    }

    /// Notes why a renewal failed, or that one succeeded: a loss names its cause.
    pub(crate) fn note_failure(&self, why: Option<&str>) {
        let mut failure = lock(&self.failure);
        if failure.as_deref() != why {
            *failure = why.map(str::to_owned);
        }
    }

    /// Why the last renewal failed; none if it succeeded.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Ends the hold, and says what is left of the lease; `None` if it was lost before. A change must be
    /// [announced](Self::announce).
    ///
    /// Both in one step: from then on the keeper cannot end it by a limit any more. That would release the
    /// claim, which the next task of this process may hold by then.
    pub(crate) fn end(&self, now: Moment) -> (Option<Left>, Option<LeaseState>) {
        let mut lease = lock(&self.lease);
        (lease.left(now), self.step_locked(&mut lease, now, Event::Released).1)
    }

    /// Steps the lease. What it has changed to must be [announced](Self::announce).
    pub(crate) fn step(&self, now: Moment, event: Event) -> Step {
        self.step_locked(&mut lock(&self.lease), now, event)
    }

    fn step_locked(&self, lease: &mut Lease, now: Moment, event: Event) -> Step {
        let event = match event {
            Event::Renewed(sent, deadline) => {
                Event::Renewed(sent, deadline.before(self.grant.claim().lock_delay()))
            }
            other => other,
        };
        let before = lease.state();
        let advice = lease.on(now, event);
        let after = lease.state();
        let valid_until = match after {
            LeaseState::Held | LeaseState::Suspect => lease.deadline().as_nanos(),
            LeaseState::Lost(_) | LeaseState::Released => 0,
        };
        self.valid_until.store(valid_until, Ordering::Release);
        let change = (before != after).then_some(after);
        // Here, since every way to lose a lock comes through here, and each lock loses once.
        if let Some(LeaseState::Lost(_)) = change {
            self.telemetry.count_loss();
        }
        (advice, change)
    }

    /// Steps the lease, and notifies those who watch it if the state has changed.
    pub(crate) fn on(&self, now: Moment, event: Event) -> Advice {
        let (advice, change) = self.step(now, event);
        if let Some(state) = change {
            self.announce(state);
        }
        advice
    }

    /// Notifies those who watch the lock. Wakers of the application run in here: it must not be called under
    /// a mutex.
    pub(crate) fn announce(&self, state: LeaseState) {
        wake_tasks(|| self.changed.notify_waiters());
        let (name, token) = (self.grant.claim().name(), self.grant.token());
        match state {
            LeaseState::Lost(loss) => {
                let cause = self.failure();
                tracing::warn!(lock = %name, %token, ?loss, cause, "lock lost");
            }
            LeaseState::Suspect => tracing::info!(lock = %name, %token, "lock in doubt"),
            LeaseState::Held => tracing::info!(lock = %name, %token, "lock sure again"),
            LeaseState::Released => (),
        }
        self.telemetry.state_changed(&self.grant, self.since, state);
        if let LeaseState::Lost(_) = state {
            // Tasks of this process must not wait for a guard that is never dropped.
            self.grant.claim().turn().pass_on();
        }
    }

    /// Until when the lock is valid; a moment long past once it is lost or released.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// Whether the lock is held now, by the clock.
    pub(crate) fn is_held(&self) -> bool {
        !self.clock().has_passed(self.valid_until())
    }

    /// The time until the deadline.
    pub(crate) fn time_left(&self) -> Duration {
        self.valid_until().since(self.clock().now())
    }

    /// The state now. The clock decides, even if the keeper has not run yet.
    pub(crate) fn lease_state(&self) -> LeaseState {
        lock(&self.lease).state_at(self.clock().now())
    }

    /// Resolves when the lock is lost or released.
    ///
    /// It waits for the keeper and for the deadline, whichever comes first: so it works even if the keeper
    /// thread gets no processor time.
    pub(crate) async fn ended(&self) -> LeaseState {
        loop {
            // All who wait for this are woken by one call: a waker that panics must not keep the others from
            // it.
            let changed = unless_panics(self.changed.notified());
            match self.lease_state() {
                LeaseState::Held | LeaseState::Suspect => (),
                ended => return ended,
            }
            tokio::select! {
                () = changed => (),
                () = self.clock().sleep_until(self.valid_until()) => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::Context;

    use super::*;
    use crate::system::waker;
    use crate::{Claim, FencingToken, LockName, Loss, Mode, Wait};

    #[tokio::test]
    async fn a_waker_that_panics_keeps_nobody_from_a_loss() {
        let (name, ttl) = (LockName::new("a").unwrap(), Duration::from_secs(60));
        let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into());
        let grant = Grant::new(&claim, FencingToken::new(1), Moment::now());
        let held = HeldLock::new(grant, Limits::default(), &Telemetry::new("test"));
        let (mut first, mut second) = (Box::pin(held.ended()), Box::pin(held.ended()));
        // Without a message of the panic.
        let panics = waker(|| {
            std::panic::resume_unwind(Box::new("a waker"));
        });
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        let woken = Arc::new(AtomicBool::new(false));
        let notes = Arc::clone(&woken);
        let waker = waker(move || notes.store(true, Ordering::SeqCst));
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        held.on(Moment::now(), Event::Gone);
        assert!(woken.load(Ordering::SeqCst), "it is woken only by its timer");
        assert_eq!(second.await, LeaseState::Lost(Loss::Taken));
    }
}
