//! Until when a grant that a release made for a waiter is valid.
//!
//! A release that finds a waiter grants the lock to it in the same step, under a short *provisional* lease, and sends it
//! a notification. That message does not say when the lease began, and may be late by any time. What counts is
//! the sign of life that the server had last seen when it granted. The grant names it; it was sent before the grant, so
//! the lease ends its whole length after `sent`, or later.
//!
//! Where a release reads the clock before it sees the queue and commits, a sign of life in between can be younger than the
//! lease. So two readings of the server's clock count as well: `clock` in the answer to the sign of life, and `ends`, the
//! end of the provisional lease. The lease ends `ends - clock` after `sent`, or later. That difference alone is not enough:
//! the clock may have been set forward between the two. The shorter of the two times counts.
//!
//! The sign of life may be one of several that were answered: an earlier one proves the same about a later lease. No
//! other sign of life is enough. One that came after the lease had lapsed, and has made a new place in the queue, can
//! meet an old grant that comes late; if the clock was set back meanwhile, that looks fresh. Nor is one without an
//! answer enough. And another connection may lead to another server, with another clock.
//!
//! `tests/hand_over_model` searches every order of events with this very code, and finds what breaks without each rule.

use std::time::Duration;

use crate::lease::valid_until;
use crate::{FencingToken, Moment};

/// A sign of life of a waiter that the server has answered: any request of which the answer tells the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignOfLife {
    sent: Moment,
    clock: u64,
    number: u64,
    generation: u64,
}

impl SignOfLife {
    /// One with this number, which the server keeps with the place in the queue; each has another. It was sent at `sent`,
    /// and the answer has the time of the server's clock, in microseconds.
    pub fn new(number: u64, sent: Moment, clock: u64) -> Self {
        Self { sent, clock, number, generation: 0 }
    }

    /// With the number of the connection that the answer came over, where connections can lead to different servers.
    #[must_use]
    pub fn over(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it was sent.
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// The server's clock when it answered, in microseconds.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// The connection that the answer came over.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// A grant that a release made for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushedGrant {
    token: FencingToken,
    ends: u64,
    lease: Duration,
    seen: u64,
    generation: u64,
}

impl PushedGrant {
    /// A grant of this token, the last of those that the claim wants, under a provisional lease of this length that `ends`
    /// by the server's clock, in microseconds. `seen` is the number of the last sign of life that the server had seen.
    pub fn new(token: FencingToken, lease: Duration, ends: u64, seen: u64) -> Self {
        Self { token, ends, lease, seen, generation: 0 }
    }

    /// With the number of the connection that the message came over, as in [`SignOfLife::over`].
    #[must_use]
    pub fn over(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// The last of the tokens that the claim wants.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The length of the provisional lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The end of the provisional lease by the server's clock, in microseconds.
    pub fn ends(&self) -> u64 {
        self.ends
    }

    /// The number of the last sign of life that the server had seen.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The connection that the message came over.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Until when the grant is valid, given the waiter's last answered sign of life. `None`: that proves too
    /// little, or there is hardly any time left; the waiter asks the server, which takes as long as a renewal.
    pub fn deadline(&self, sign: Option<&SignOfLife>, now: Moment) -> Option<Moment> {
        let sign = sign.filter(|sign| sign.number == self.seen && sign.generation == self.generation)?;
        let left = Duration::from_micros(self.ends.checked_sub(sign.clock)?);
        let deadline = valid_until(sign.sent, self.lease.min(left));
        (now.after(self.lease / 8) < deadline).then_some(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// Sent at 10 s, answered when the server's clock said 100 s.
    fn sign() -> SignOfLife {
        SignOfLife::new(5, at(10_000), 100_000_000).over(1)
    }

    fn ends(ends: u64) -> PushedGrant {
        PushedGrant::new(FencingToken::new(7), LEASE, ends, 5).over(1)
    }

    #[test]
    fn a_lease_counts_from_the_sign_of_life_before_it() {
        let pushed = ends(104_200_000);
        assert_eq!(pushed.deadline(Some(&sign()), at(11_200)), Some(valid_until(at(10_000), LEASE)));
        assert_eq!(pushed.deadline(Some(&sign()), at(12_700)), None, "hardly any time is left");
        let eighth = valid_until(at(10_000), LEASE).before(LEASE / 8);
        assert_eq!(pushed.deadline(Some(&sign()), eighth), None, "an eighth is too little");
        let more = pushed.deadline(Some(&sign()), eighth.before(Duration::from_nanos(1)));
        assert_eq!(more, Some(valid_until(at(10_000), LEASE)));
        assert_eq!(pushed.deadline(None, at(11_200)), None);
    }

    #[test]
    fn a_lease_that_is_older_than_the_sign_of_life_ends_as_much_earlier() {
        let deadline = valid_until(at(10_000), Duration::from_secs(1));
        assert_eq!(ends(101_000_000).deadline(Some(&sign()), at(10_001)), Some(deadline));
        assert_eq!(ends(99_999_999).deadline(Some(&sign()), at(10_001)), None, "it had ended before");
    }

    #[test]
    fn another_connection_has_another_clock_and_another_sign_of_life_another_place() {
        for other in
            [PushedGrant { generation: 2, ..ends(104_200_000) }, PushedGrant { seen: 4, ..ends(104_200_000) }]
        {
            assert_eq!(other.deadline(Some(&sign()), at(11_200)), None);
        }
    }
}
