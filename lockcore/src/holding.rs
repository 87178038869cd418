//! One held lock, shared by its guard and the keeper.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::lease::{Advice, Event, Lease, Left, Limits};
use crate::local::Right;
use crate::sync::lock;
use crate::{Grant, Moment, Standing};

/// One held lock: what was granted, and how sure we are of it.
#[derive(Debug)]
pub(crate) struct Holding {
    grant: Grant,
    /// Passed on when the lock is lost: those who wait in this process are not to wait for a guard that is stuck.
    right: Option<Arc<Right>>,
    lease: Mutex<Lease>,
    /// A copy of the lease's deadline, zero once the lock is lost or given up: `is_held` is one load and one look at
    /// the clock.
    believed_until: AtomicU64,
    /// The place in the ward's table.
    slot: AtomicUsize,
    changed: Notify,
    /// When the lease first needs something.
    first_due: Moment,
}

impl Holding {
    pub(crate) fn new(grant: Grant, limits: Limits, right: Option<Arc<Right>>) -> Self {
        let mut lease = Lease::new(believed(&grant), grant.deadline());
        if limits != Limits::default() {
            lease = lease.limited(Moment::now(), limits);
        }
        Self {
            right,
            first_due: lease.renew_at().min(lease.deadline()),
            believed_until: AtomicU64::new(lease.deadline().as_nanos()),
            lease: Mutex::new(lease),
            grant,
            slot: AtomicUsize::new(usize::MAX),
            changed: Notify::new(),
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The lease that the holder believes in: without the lock delay.
    pub(crate) fn ttl(&self) -> Duration {
        believed(&self.grant)
    }

    pub(crate) fn limits(&self) -> Limits {
        lock(&self.lease).limits()
    }

    /// Sets limits that count from now. The keeper is to look at the lease again.
    pub(crate) fn limit(&self, limits: Limits) {
        let mut lease = lock(&self.lease);
        *lease = lease.limited(Moment::now(), limits);
        if matches!(lease.standing(), Standing::Held | Standing::Suspect) {
            self.believed_until.store(lease.deadline().as_nanos(), Ordering::Release);
        }
    }

    pub(crate) fn first_due(&self) -> Moment {
        self.first_due
    }

    pub(crate) fn slot(&self) -> &AtomicUsize {
        &self.slot
    }

    /// Steps the lease, and tells those who watch it if that changed how sure we are.
    pub(crate) fn on(&self, now: Moment, event: Event) -> Advice {
        let (advice, change) = self.step(now, event);
        if let Some(standing) = change {
            self.tell(standing);
        }
        advice
    }

    /// Gives the lock up, and says what is left; `None` if it was lost before.
    ///
    /// Both in one step: once it is given up, the keeper cannot end it by a limit any more. That would release the
    /// claim, which the next holder in this process may have by then.
    pub(crate) fn give_up(&self, now: Moment) -> Option<Left> {
        let (left, change) = {
            let mut lease = lock(&self.lease);
            (lease.left(now), self.step_locked(&mut lease, now, Event::GivenUp).1)
        };
        if let Some(standing) = change {
            self.tell(standing);
        }
        left
    }

    /// Steps the lease only. What it has changed to must be [told](Self::tell).
    pub(crate) fn step(&self, now: Moment, event: Event) -> (Advice, Option<Standing>) {
        self.step_locked(&mut lock(&self.lease), now, event)
    }

    fn step_locked(&self, lease: &mut Lease, now: Moment, event: Event) -> (Advice, Option<Standing>) {
        let event = match event {
            Event::Renewed(deadline) => Event::Renewed(deadline.before(self.grant.claim().rest())),
            other => other,
        };
        let before = lease.standing();
        let advice = lease.on(now, event);
        let after = lease.standing();
        let believed_until = match after {
            Standing::Held | Standing::Suspect => lease.deadline().as_nanos(),
            Standing::Lost(_) | Standing::Released => 0,
        };
        self.believed_until.store(believed_until, Ordering::Release);
        (advice, (before != after).then_some(after))
    }

    /// Tells those who watch the lock. Code of the application runs in here, wakers and subscribers to events: it must
    /// not be called under a mutex.
    pub(crate) fn tell(&self, standing: Standing) {
        self.changed.notify_waiters();
        self.report(standing);
        if let (Standing::Lost(_), Some(right)) = (standing, &self.right) {
            right.leave();
        }
    }

    fn report(&self, standing: Standing) {
        let (name, token) = (self.grant.claim().name(), self.grant.token());
        match standing {
            Standing::Lost(loss) => tracing::warn!(lock = %name, %token, ?loss, "lock lost"),
            Standing::Suspect => tracing::info!(lock = %name, %token, "lock in doubt"),
            Standing::Held => tracing::info!(lock = %name, %token, "lock sure again"),
            Standing::Released => (),
        }
    }

    /// Until when the lock may be believed in; a moment long past once it is lost or given up.
    pub(crate) fn believed_until(&self) -> Moment {
        Moment::from_nanos(self.believed_until.load(Ordering::Acquire))
    }

    /// How sure we are now. The clock decides, even if the keeper has not had its turn.
    pub(crate) fn standing(&self) -> Standing {
        lock(&self.lease).standing_at(Moment::now())
    }

    /// Resolves when the lock is lost or given up.
    ///
    /// It waits for the keeper's word and for the deadline, whichever comes first: so it holds even if the keeper
    /// thread gets no processor time.
    pub(crate) async fn ended(&self) -> Standing {
        loop {
            let changed = self.changed.notified();
            match self.standing() {
                Standing::Held | Standing::Suspect => (),
                ended => return ended,
            }
            tokio::select! {
                () = changed => (),
                () = self.believed_until().sleep() => (),
            }
        }
    }
}

fn believed(grant: &Grant) -> Duration {
    grant.claim().ttl().saturating_sub(grant.claim().rest())
}
