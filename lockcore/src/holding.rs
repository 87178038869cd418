//! One held lock, shared by its guard and the keeper.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lease::{Advice, Event, Lease, Limits};
use crate::local::Right;
use crate::sync::lock;
use crate::{Grant, Moment, Standing};

/// One held lock: what was granted, and how sure we are of it.
#[derive(Debug)]
pub(crate) struct Holding {
    grant: Grant,
    limits: Limits,
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
        let claim = grant.claim();
        let mut lease = Lease::new(claim.ttl().saturating_sub(claim.rest()), grant.deadline());
        if limits != Limits::default() {
            lease = lease.limited(Moment::now(), limits);
        }
        Self {
            limits,
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

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn first_due(&self) -> Moment {
        self.first_due
    }

    pub(crate) fn slot(&self) -> &AtomicUsize {
        &self.slot
    }

    /// Steps the lease, and wakes those who watch it if that changed how sure we are.
    pub(crate) fn on(&self, now: Moment, event: Event) -> Advice {
        let event = match event {
            Event::Renewed(deadline) => Event::Renewed(deadline.before(self.grant.claim().rest())),
            other => other,
        };
        let (before, after, advice) = {
            let mut lease = lock(&self.lease);
            let before = lease.standing();
            let advice = lease.on(now, event);
            let believed_until = match lease.standing() {
                Standing::Held | Standing::Suspect => lease.deadline().as_nanos(),
                Standing::Lost(_) | Standing::Released => 0,
            };
            self.believed_until.store(believed_until, Ordering::Release);
            (before, lease.standing(), advice)
        };
        if before != after {
            self.changed.notify_waiters();
            self.report(after);
            if let (Standing::Lost(_), Some(right)) = (after, &self.right) {
                right.leave();
            }
        }
        advice
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

    /// The end of the lease, if it is fresh: held for sure, and no renewal due or under way.
    pub(crate) fn fresh(&self, now: Moment) -> Option<Moment> {
        lock(&self.lease).fresh(now)
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
