//! The lease: a pure state machine of (time, event).
//!
//! It never reads a clock and does no I/O, so tests step it through every order of events. The keeper drives it.
//!
//! The rules: belief ends at a deadline that is counted from the *start* of the last successful request; a failed
//! renewal is unknown, not lost, and the deadline stands; a lease that is lost never comes back.

use std::time::Duration;

use crate::Moment;

/// Until when a holder may believe in a lease of `ttl` that was set or extended by a request sent at `sent`.
///
/// The server counts from the arrival of the request, which is later than `sent`. The margin of 1 % of the ttl plus
/// 2 ms allows for clocks that run at different rates (the figures of the Redlock description).
pub fn belief(sent: Moment, ttl: Duration) -> Moment {
    sent.after(ttl.saturating_sub(drift(ttl)))
}

fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out before it could be renewed. Another may hold the lock now.
    Expired,
    /// The server says that the claim no longer holds the lock.
    Taken,
    /// The lock was held for the longest time that its request allows. It has been given up.
    HeldTooLong,
    /// The application has not reported progress for as long as its request allows. The lock has been given up.
    NoProgress,
}

/// What ends a lease even though its holder is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold.
    pub max_hold: Option<Duration>,
    /// The longest time without a report of progress.
    pub progress: Option<Duration>,
}

/// What is left of a lease when its holder gives it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The end of the lease itself, whatever limits its holder had.
    pub until: Moment,
    /// Whether it is held for sure, and no renewal is due or under way.
    pub fresh: bool,
}

/// How sure a holder can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// The lock is held.
    Held,
    /// The lock is held until the deadline, but the last renewal is overdue or failed: pause what can be paused.
    Suspect,
    /// The lock is lost: stop.
    Lost(Loss),
    /// The lock was given up.
    Released,
}

/// What happens to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A renewal has been sent.
    Sent,
    /// A renewal succeeded; the new deadline.
    Renewed(Moment),
    /// A renewal failed in a way that says nothing about the lock.
    Unknown,
    /// The server says that the lock is gone.
    Gone,
    /// The application reports progress.
    Progress,
    /// The holder gave the lock up.
    GivenUp,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing until this moment; then send [`Event::Tick`].
    Rest(Moment),
    /// Send a renewal, and tell by [`Event::Sent`].
    Renew,
    /// Nothing ever again: lost or given up.
    Done,
}

/// The state of one lease.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    ttl: Duration,
    deadline: Moment,
    renew_at: Moment,
    sent: Option<Moment>,
    standing: Standing,
    limits: Limits,
    hold_ends: Moment,
    progress_ends: Moment,
}

impl Lease {
    /// A lease that was just granted.
    pub fn new(ttl: Duration, deadline: Moment) -> Self {
        let renew_at = deadline.before(ttl / 3 * 2);
        Self {
            ttl,
            deadline,
            renew_at,
            sent: None,
            standing: Standing::Held,
            limits: Limits::default(),
            hold_ends: Moment::NEVER,
            progress_ends: Moment::NEVER,
        }
    }

    /// The lease with limits that count from `now`.
    #[must_use]
    pub fn limited(mut self, now: Moment, limits: Limits) -> Self {
        self.limits = limits;
        self.hold_ends = limits.max_hold.map_or(Moment::NEVER, |span| now.after(span));
        self.progress_ends = limits.progress.map_or(Moment::NEVER, |span| now.after(span));
        self
    }

    /// The end of belief.
    pub fn deadline(&self) -> Moment {
        self.deadline.min(self.hold_ends).min(self.progress_ends)
    }

    /// Why belief ends at its deadline.
    fn loss(&self) -> Loss {
        match self.deadline() {
            end if end == self.deadline => Loss::Expired,
            end if end == self.hold_ends => Loss::HeldTooLong,
            _ => Loss::NoProgress,
        }
    }

    /// When the next renewal is due.
    pub fn renew_at(&self) -> Moment {
        self.renew_at
    }

    /// How sure the holder can be, as of the last event.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// How sure the holder can be at `now`, even if no event has told the lease that its time is over.
    pub fn standing_at(&self, now: Moment) -> Standing {
        match self.standing {
            Standing::Held | Standing::Suspect if now >= self.deadline() => Standing::Lost(self.loss()),
            other => other,
        }
    }

    /// The limits that it has.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What there is to inherit for one who holds the same lock next; `None` if it is lost or given up at `now`.
    pub fn left(&self, now: Moment) -> Option<Left> {
        let standing = self.standing_at(now);
        let fresh = standing == Standing::Held && self.sent.is_none() && now < self.renew_at;
        matches!(standing, Standing::Held | Standing::Suspect).then_some(Left { until: self.deadline, fresh })
    }

    /// How long a renewal may take before it is given up and tried again.
    pub fn patience(ttl: Duration) -> Duration {
        (ttl / 4).clamp(Duration::from_millis(5), Duration::from_secs(5))
    }

    /// How far ahead of time a renewal may be sent along with others, so that the leases of a client travel together.
    fn company(&self) -> Duration {
        self.ttl / 8
    }

    fn retry_pause(&self) -> Duration {
        (self.ttl / 20).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// Takes an event at the time `now`, and says what to do next.
    pub fn on(&mut self, now: Moment, event: Event) -> Advice {
        if matches!(self.standing, Standing::Lost(_) | Standing::Released) {
            return Advice::Done;
        }
        match event {
            Event::Gone => self.standing = Standing::Lost(Loss::Taken),
            // Past the deadline nothing counts any more, not even the good news of an answer that came late: the
            // holder may have been told already that its time was over.
            _ if now >= self.deadline() => self.standing = Standing::Lost(self.loss()),
            Event::GivenUp => self.standing = Standing::Released,
            Event::Tick => return self.advise(now),
            Event::Progress => {
                // Of reports that meet, the latest counts.
                let ends = self.limits.progress.map_or(Moment::NEVER, |span| now.after(span));
                self.progress_ends = self.progress_ends.max(ends);
            }
            Event::Sent => self.sent = Some(now),
            Event::Renewed(deadline) => {
                self.deadline = self.deadline.max(deadline);
                self.renew_at = self.deadline.before(self.ttl / 3 * 2);
                self.sent = None;
                self.standing = Standing::Held;
                self.standing = self.standing_at(now);
            }
            Event::Unknown => {
                self.sent = None;
                self.renew_at = now.after(self.retry_pause());
                self.standing = Standing::Suspect;
            }
        }
        match self.standing {
            Standing::Lost(_) | Standing::Released => Advice::Done,
            _ => self.rest(now),
        }
    }

    fn advise(&mut self, now: Moment) -> Advice {
        if let Some(sent) = self.sent {
            if now >= self.overdue(sent) {
                self.standing = Standing::Suspect;
            }
        } else if now.after(self.company()) >= self.renew_at {
            // In doubt, the pause between two tries is kept.
            if self.standing == Standing::Held || now >= self.renew_at {
                return Advice::Renew;
            }
        }
        self.rest(now)
    }

    fn rest(&self, now: Moment) -> Advice {
        Advice::Rest(match self.sent {
            Some(sent) if now < self.overdue(sent) => self.overdue(sent).min(self.deadline()),
            Some(_) => self.deadline(),
            None => self.renew_at.min(self.deadline()),
        })
    }

    fn overdue(&self, sent: Moment) -> Moment {
        sent.after(Self::patience(self.ttl) / 2)
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
