//! The state of one lease: a pure function of (time, event).

use std::time::Duration;

use crate::{LeaseState, Loss, Moment};

/// What ends a lease even though its holder is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The longest hold.
    pub(crate) max_hold: Option<Duration>,
    /// The longest time without a report of progress.
    pub(crate) progress: Option<Duration>,
}

/// What is left of a lease when the hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// The start of the validity that is left.
    pub(crate) sent: Moment,
    /// The end of the lease itself, whatever limits its holder had.
    pub(crate) until: Moment,
    /// Whether it is held for sure, and no renewal is due or under way.
    pub(crate) fresh: bool,
}

/// What happens to a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Time has passed.
    Tick,
    /// A renewal has been sent.
    Sent,
    /// A renewal that was sent at the first moment succeeded; the second is the new deadline.
    Renewed(Moment, Moment),
    /// A renewal failed in a way that says nothing about the lock. It is tried again after this pause.
    Unknown(Duration),
    /// The server says that the lock is gone.
    Gone,
    /// The application reports progress.
    Progress,
    /// The holder released the lock.
    Released,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing until this moment; then send [`Event::Tick`].
    Sleep(Moment),
    /// Send a renewal, and report it by [`Event::Sent`].
    Renew,
    /// Nothing more: lost or released.
    Done,
}

/// The shortest and the longest time that one renewal may take.
const RENEWAL_TIMEOUT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(5));
/// The shortest and the longest pause between two renewals of a lease in doubt.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// When a provisional lease is renewed. Whoever holds a lock for a shorter time saves the renewal, and the
/// keeper is not woken by each hand-over of a busy lock.
const SOON: Duration = Duration::from_millis(20);

/// The state of one lease.
///
/// All its times derive from the *validity* of the last grant or renewal: the time from the sending of the
/// request to the deadline. Usually that is the ttl; where the server or the session allows less, it is
/// shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    validity: Duration,
    sent: Moment,
    deadline: Moment,
    renew_at: Moment,
    /// The next renewal is not sent earlier than this, not even along with others.
    not_before: Moment,
    /// When the renewal was sent that is under way.
    renewing: Option<Moment>,
    /// How many renewals in a row have failed.
    failures: u32,
    state: LeaseState,
    limits: Limits,
    hold_ends: Moment,
    progress_ends: Moment,
    /// The largest batch in which it is renewed.
    batch_limit: usize,
    /// When the first renewal was sent of those in a row that have failed.
    failed_since: Moment,
}

impl Lease {
    /// A lease that was granted by a request sent at `sent`.
    pub(crate) fn new(sent: Moment, deadline: Moment) -> Self {
        let validity = deadline.since(sent);
        Self {
            validity,
            sent,
            deadline,
            renew_at: sent.after(validity / 3),
            not_before: sent,
            renewing: None,
            failures: 0,
            state: LeaseState::Held,
            limits: Limits::default(),
            hold_ends: Moment::NEVER,
            progress_ends: Moment::NEVER,
            batch_limit: usize::MAX,
            failed_since: sent,
        }
    }

    /// The lease as a provisional one: renewed soon.
    #[must_use]
    pub(crate) fn provisional(mut self, now: Moment) -> Self {
        self.renew_at = now.after(SOON.min(self.deadline.since(now) / 3));
        self.not_before = self.renew_at;
        self
    }

    /// The lease with limits that count from `now`.
    #[must_use]
    pub(crate) fn limited(mut self, now: Moment, limits: Limits) -> Self {
        self.limits = limits;
        self.hold_ends = limits.max_hold.map_or(Moment::NEVER, |span| now.after(span));
        self.progress_ends = limits.progress.map_or(Moment::NEVER, |span| now.after(span));
        self
    }

    /// The end of validity.
    pub(crate) fn deadline(&self) -> Moment {
        self.deadline.min(self.hold_ends).min(self.progress_ends)
    }

    /// Why the validity ends at its deadline.
    fn loss(&self) -> Loss {
        match self.deadline() {
            end if end == self.deadline => Loss::Expired,
            end if end == self.hold_ends => Loss::HeldTooLong,
            _ => Loss::NoProgress,
        }
    }

    /// When the next renewal is due.
    pub(crate) fn renew_at(&self) -> Moment {
        self.renew_at
    }

    /// How many renewals in a row have failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The largest batch in which it is renewed.
    pub(crate) fn batch_limit(&self) -> usize {
        self.batch_limit
    }

    /// A renewal in a batch of this size, sent then, is about to count as failed. The next batch is smaller after
    /// the first failure, and while the server answers others: the last of those was sent at `answered`.
    pub(crate) fn narrow(&mut self, size: usize, sent: Moment, answered: Moment) {
        let is_first = self.failures == 0;
        if is_first {
            self.failed_since = sent;
        }
        if is_first || answered >= self.failed_since {
            self.batch_limit = (size / 2).max(1);
        }
    }

    /// The state as of the last event.
    pub(crate) fn state(&self) -> LeaseState {
        self.state
    }

    /// The state at `now`, even if no event has told the lease that its deadline has passed.
    pub(crate) fn state_at(&self, now: Moment) -> LeaseState {
        match self.state {
            state if state.is_held() && now >= self.deadline() => LeaseState::Lost(self.loss()),
            other => other,
        }
    }

    /// The limits that it has.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// What is left of the lease for the next task that holds the lock; `None` if it is lost or released at
    /// `now`.
    pub(crate) fn left(&self, now: Moment) -> Option<Left> {
        let state = self.state_at(now);
        let fresh = state == LeaseState::Held && self.renewing.is_none() && now < self.renew_at;
        let left = Left { sent: self.sent, until: self.deadline, fresh };
        state.is_held().then_some(left)
    }

    /// How long a renewal that is sent at `now` may take before it counts as failed. This is the one place
    /// where that is decided.
    ///
    /// The first one may take a quarter of the validity. Those in doubt may take a quarter of the time that
    /// is left: a batch that is halved after each failure then comes down from 500 leases to one before the
    /// deadline.
    pub(crate) fn renewal_timeout(&self, now: Moment) -> Duration {
        let whole = if self.failures == 0 { self.validity } else { self.deadline.since(now) };
        (whole / 4).clamp(RENEWAL_TIMEOUT.0, RENEWAL_TIMEOUT.1)
    }

    /// How long to wait after a failed renewal. `spread` is from 0 to 1: leases that failed together are not
    /// to be tried again in step.
    pub(crate) fn retry_pause(&self, now: Moment, spread: f64) -> Duration {
        let pause = (self.deadline.since(now) / 12).clamp(RETRY_PAUSE.0, RETRY_PAUSE.1);
        pause.mul_f64(0.5 + spread / 2.0)
    }

    /// How far ahead of time a renewal may be sent along with others, so that a client renews many leases in
    /// one call.
    fn batch_window(&self) -> Duration {
        self.validity / 8
    }

    /// Takes an event at the time `now`, and says what to do next.
    pub(crate) fn on(&mut self, now: Moment, event: Event) -> Advice {
        if !self.state.is_held() {
            return Advice::Done;
        }
        match event {
            Event::Gone => self.state = LeaseState::Lost(Loss::Taken),
            // Past the deadline nothing counts any more, not even the success of a renewal whose answer came
            // late: the holder may have seen the loss already.
            _ if now >= self.deadline() => self.state = LeaseState::Lost(self.loss()),
            Event::Released => self.state = LeaseState::Released,
            Event::Tick => return self.advise(now),
            Event::Progress => {
                // Of concurrent reports, the latest counts.
                let ends = self.limits.progress.map_or(Moment::NEVER, |span| now.after(span));
                self.progress_ends = self.progress_ends.max(ends);
            }
            Event::Sent => self.renewing = Some(now),
            Event::Renewed(sent, deadline) => self.renewed(now, sent, deadline),
            Event::Unknown(pause) => {
                self.renewing = None;
                self.failures += 1;
                self.renew_at = now.after(pause);
                self.state = LeaseState::Suspect;
            }
        }
        if self.state.is_held() { self.sleep(now) } else { Advice::Done }
    }

    fn renewed(&mut self, now: Moment, sent: Moment, deadline: Moment) {
        let usual = self.validity;
        if deadline > self.deadline {
            self.deadline = deadline;
            self.sent = sent;
            self.validity = deadline.since(sent);
        }
        // An answer that extends little, or nothing, must not be followed by another renewal at once, and
        // another.
        let left = self.deadline.since(now);
        self.not_before = now.after((usual / 6).min((left / 3).max(RETRY_PAUSE.0)));
        self.renew_at = sent.after(self.deadline.since(sent) / 3).max(self.not_before);
        self.renewing = None;
        self.failures = 0;
        self.batch_limit = usize::MAX;
        self.state = LeaseState::Held;
        self.state = self.state_at(now);
    }

    fn advise(&mut self, now: Moment) -> Advice {
        if let Some(sent) = self.renewing {
            if now >= self.overdue(sent) {
                self.state = LeaseState::Suspect;
            }
        } else if now >= self.renew_at {
            return Advice::Renew;
        }
        // Leases without failures are renewed together. Those in doubt keep the pause between two tries.
        let near = now >= self.not_before && now.after(self.batch_window()) >= self.renew_at;
        if self.renewing.is_none() && self.state == LeaseState::Held && near {
            return Advice::Renew;
        }
        self.sleep(now)
    }

    fn sleep(&self, now: Moment) -> Advice {
        Advice::Sleep(match self.renewing {
            Some(sent) if now < self.overdue(sent) => self.overdue(sent).min(self.deadline()),
            Some(_) => self.deadline(),
            None => self.renew_at.min(self.deadline()),
        })
    }

    /// When a renewal under way puts the lease in doubt, although it has not failed yet.
    fn overdue(&self, sent: Moment) -> Moment {
        sent.after((self.validity / 8).clamp(RENEWAL_TIMEOUT.0, RENEWAL_TIMEOUT.1))
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
