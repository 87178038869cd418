//! One held lock, shared by its guard and the keeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::contract::Class;
use crate::life::{Act, Advice, Event, Lease, Left, Limits};
use crate::system::unless_panics;
use crate::telemetry::{Since, Telemetry};
use crate::{Claim, Clock, Error, ErrorKind, Grant, LeaseState, Moment};

/// One held lock: its grant. The lease is in the life of its claim, as that of the present hold.
#[derive(Debug)]
pub(crate) struct HeldLock {
    grant: Grant,
    telemetry: Arc<Telemetry>,
    /// The class of the request that has got it. Its claim may be that of an earlier one.
    class: Class,
    /// When the hold began.
    since: Since,
    /// A copy of the lease's deadline, zero once the lock is lost or released: `is_held` loads it and reads
    /// the clock.
    valid_until: AtomicU64,
    /// The lease as it began.
    first: Lease,
    /// The number of the last write of a record. It is locked during a write.
    records: tokio::sync::Mutex<u64>,
}

/// The error of a loss while work was going on, with the failure of the last renewal, if it failed.
pub(crate) fn lost_at_work(failure: Option<String>) -> Error {
    lost("the lock was lost while the work was going on", failure)
}

/// The same of any loss.
pub(crate) fn lost(what: &'static str, failure: Option<String>) -> Error {
    let error = Error::new(ErrorKind::Lost, what);
    match failure {
        Some(why) => error.with_source(format!("the last renewal failed: {why}")),
        None => error,
    }
}

impl HeldLock {
    pub(crate) fn new(grant: Grant, class: Class, limits: Limits, telemetry: &Arc<Telemetry>) -> Self {
        let claim = grant.claim();
        let mut lease = Lease::new(grant.sent(), grant.deadline());
        if grant.is_provisional() {
            lease = lease.provisional(claim.clock().now());
        }
        if limits != Limits::default() {
            lease = lease.limited(claim.clock().now(), limits);
        }
        let failure = {
            let mut state = claim.state();
            state.life.on(&|| claim.clock().now(), Act::Hold(lease));
            state.failure.take()
        };
        drop(failure);
        Self {
            since: telemetry.granted(&grant, class),
            class,
            telemetry: Arc::clone(telemetry),
            first: lease,
            valid_until: AtomicU64::new(lease.deadline().as_nanos()),
            grant,
            records: tokio::sync::Mutex::const_new(0),
        }
    }

    /// The number of the last write of a record. The next one waits until this is dropped.
    pub(crate) async fn record_number(&self) -> tokio::sync::MutexGuard<'_, u64> {
        self.records.lock().await
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn claim(&self) -> &Claim {
        self.grant.claim()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.claim().clock()
    }

    /// A copy of the lease. After the hold it is the lease as it began.
    pub(crate) fn lease(&self) -> Lease {
        self.claim().life(|life| life.holds.lease(self.grant.hold()).copied()).unwrap_or(self.first)
    }

    /// Changes the lease, unless the hold has ended.
    pub(super) fn change(&self, change: impl FnOnce(&mut Lease)) {
        self.claim().life(|life| life.holds.lease_mut(self.grant.hold()).map(change));
    }

    pub(crate) fn limits(&self) -> Limits {
        self.lease().limits()
    }

    /// Sets limits that count from now. The keeper must look again.
    pub(crate) fn limit(&self, limits: Limits) {
        let now = self.clock().now();
        self.change(|lease| {
            *lease = lease.limited(now, limits);
            if lease.state().is_held() {
                self.valid_until.store(lease.deadline().as_nanos(), Ordering::Release);
            }
        });
    }

    /// When the lease is due for the first time.
    pub(crate) fn first_due(&self) -> Moment {
        self.first.renew_at().min(self.first.deadline())
    }

    /// Notes why a renewal failed, or that one succeeded: a loss names its cause.
    pub(crate) fn note_failure(&self, why: Option<&str>) {
        let mut state = self.claim().state();
        if state.failure.as_deref() != why {
            state.failure = why.map(str::to_owned);
        }
    }

    /// Why the last renewal failed; none if it succeeded.
    pub(crate) fn failure(&self) -> Option<String> {
        let state = self.claim().state();
        state.life.holds.lease(self.grant.hold()).and(state.failure.clone())
    }

    /// Ends the hold, and says what is left of the lease; `None` if it was lost before. A change must be
    /// [announced](Self::announce).
    pub(crate) fn end(&self, now: Moment) -> (Option<Left>, Option<LeaseState>) {
        let (left, change) = self.claim().life(|life| life.holds.end(self.grant.hold(), now));
        self.valid_until.store(0, Ordering::Release);
        self.count(change);
        (left, change)
    }

    /// Steps the lease. Returns what to do next, and its new state if that has changed, which must be
    /// [announced](Self::announce).
    pub(crate) fn step(&self, now: Moment, event: Event) -> (Advice, Option<LeaseState>) {
        let event = match event {
            Event::Renewed(sent, deadline) => {
                Event::Renewed(sent, deadline.before(self.claim().lock_delay()))
            }
            other => other,
        };
        let step = self.claim().life(|life| {
            let step = life.holds.step(self.grant.hold(), now, event);
            let lease = life.holds.lease(self.grant.hold());
            let held = lease.filter(|lease| lease.state().is_held());
            let valid_until = held.map_or(0, |lease| lease.deadline().as_nanos());
            self.valid_until.store(valid_until, Ordering::Release);
            step
        });
        self.count(step.1);
        step
    }

    /// Every way to lose a lock comes through here, and each lock loses once.
    fn count(&self, change: Option<LeaseState>) {
        if let Some(LeaseState::Lost(_)) = change {
            self.telemetry.count_loss();
        }
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
        self.claim().ring();
        let (name, token) = (self.grant.claim().name(), self.grant.token());
        let class = || self.telemetry.class_name(self.class);
        match state {
            LeaseState::Lost(loss) => {
                let cause = self.failure();
                tracing::warn!(lockwell.name = %name, lockwell.class = class(), lockwell.token = %token, lockwell.loss = ?loss, lockwell.cause = cause, "lock lost");
            }
            LeaseState::Suspect => {
                tracing::info!(lockwell.name = %name, lockwell.class = class(), lockwell.token = %token, "lock in doubt");
            }
            LeaseState::Held => {
                tracing::info!(lockwell.name = %name, lockwell.class = class(), lockwell.token = %token, "lock sure again");
            }
            LeaseState::Released => (),
        }
        self.telemetry.state_changed(&self.grant, self.class, self.since, state);
        if let LeaseState::Lost(_) = state {
            // Tasks of this process must not wait for a guard that is never dropped.
            self.claim().pass_on();
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
        let now = self.clock().now();
        self.claim().life(|life| {
            life.holds.lease(self.grant.hold()).map_or(LeaseState::Released, |it| it.state_at(now))
        })
    }

    /// Resolves when the lock is lost or released.
    ///
    /// It waits for the keeper and for the deadline, whichever comes first: so it works even if the keeper
    /// thread gets no processor time.
    pub(crate) async fn ended(&self) -> LeaseState {
        loop {
            // All who wait for this are woken by one call: a waker that panics must not keep the others from
            // it.
            let changed = unless_panics(self.claim().rung());
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
    use crate::{FencingToken, LockName, Loss, Mode, Wait};

    #[tokio::test]
    async fn a_waker_that_panics_keeps_nobody_from_a_loss() {
        let (name, ttl) = (LockName::new("a").unwrap(), Duration::from_secs(60));
        let claim = Claim::new(name, Mode::Exclusive, ttl, Wait::No, "test".into());
        let grant = Grant::new(&claim, FencingToken::new(1), Moment::now());
        let held = HeldLock::new(grant, Class::default(), Limits::default(), &Telemetry::new("test"));
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
