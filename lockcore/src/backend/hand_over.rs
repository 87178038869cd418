//! Computes how long a grant from a hand-over is valid, that is a grant that a release made for a waiter.
//!
//! A release that finds a waiter grants the lock to it in the same step, under a short *provisional* lease,
//! and sends it a notification. That message does not say when the lease began, and may be late by any time.
//! What counts is the last heartbeat ([`Heartbeat`]) that the server had received when it granted the lock.
//! The grant contains its number. It was sent before the grant, so the lease does not end earlier than its
//! whole length after `sent`.
//!
//! If a release reads the clock before it reads the queue and commits, a heartbeat in between can be later
//! than the beginning of the lease. So two readings of the server's clock count as well: `clock` in the
//! answer to the heartbeat, and `ends`, the end of the provisional lease. The lease does not end earlier than
//! `ends - clock` after `sent`. That difference alone is not enough, since the clock may have been set
//! forward between the two readings. The shorter of the two times counts.
//!
//! That heartbeat need not be the last one that was answered: an earlier one proves the same about a later
//! lease. A heartbeat with another number is not enough. A heartbeat after the end of the lease may have made
//! a new place in the queue when an old grant arrives late; if the clock was set back meanwhile, that grant
//! looks valid. A heartbeat without an answer is not enough either. And another connection may lead to
//! another server, with another clock.
//!
//! `tools/models/tests/hand_over` searches every order of events with this code, and finds a violation
//! for each rule that is left out.

use std::time::Duration;

use crate::life::valid_until;
use crate::{Claim, FencingToken, Moment};

/// An answered heartbeat of a waiter. Each request whose answer contains the server's time can be a
/// heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    sent: Moment,
    clock: u64,
    number: u64,
    generation: u64,
}

impl Heartbeat {
    /// A heartbeat with this unique number, which the server stores with the place in the queue. It was sent
    /// at `sent`, and the answer has the time of the server's clock, in microseconds.
    pub fn new(number: u64, sent: Moment, clock: u64) -> Self {
        Self { sent, clock, number, generation: 0 }
    }

    /// Adds the number of the connection of the answer, if connections can lead to different servers.
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

    /// The number of the connection of the answer.
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
    proof: Option<(u64, Moment)>,
}

impl PushedGrant {
    /// A grant of this token, the last of the tokens that the claim wants. It has a provisional lease of this
    /// length, which ends at `ends` by the server's clock, in microseconds. `seen` is the number of the last
    /// heartbeat that the server had received.
    pub fn new(token: FencingToken, lease: Duration, ends: u64, seen: u64) -> Self {
        Self { token, ends, lease, seen, generation: 0, proof: None }
    }

    /// A grant of this token where no heartbeat counts, on one host: the message proves by a number that it is
    /// from somebody who knows the claim, and says when the release was sent.
    pub fn proven(token: FencingToken, ends: u64, proof: u64, sent: Moment) -> Self {
        Self { proof: Some((proof, sent)), ..Self::new(token, Duration::ZERO, ends, 0) }
    }

    /// Adds the number of the connection of the message, as in [`Heartbeat::over`].
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

    /// The number of the last heartbeat that the server had received.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The number of the connection of the message.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number that [proves](Self::proven) the message, and when the release was sent.
    pub fn proof(&self) -> Option<(u64, Moment)> {
        self.proof
    }

    /// The end of the grant's validity, given the waiter's answered heartbeat. `None`: the heartbeat proves
    /// too little, or little time is left; the waiter then sends a request to the server, which takes as long
    /// as a renewal.
    pub fn deadline(&self, heartbeat: Option<&Heartbeat>, now: Moment) -> Option<Moment> {
        let heartbeat = heartbeat
            .filter(|heartbeat| heartbeat.number == self.seen && heartbeat.generation == self.generation)
            .filter(|_| self.proof.is_none())?;
        let left = Duration::from_micros(self.ends.checked_sub(heartbeat.clock)?);
        let deadline = valid_until(heartbeat.sent, self.lease.min(left));
        (now.after(self.lease / 8) < deadline).then_some(deadline)
    }
}

/// The longest provisional lease. A waiter that is gone delays the others by this time. It counts from the
/// waiter's last heartbeat, so it is longer than the time between two of them.
const LONGEST: Duration = Duration::from_secs(3);

/// The length of the provisional lease under which a release may grant the lock to a claim. `None`: the release
/// only notifies the claim, since it has a lock delay, and such a short lease would have no validity.
pub fn provisional_lease(claim: &Claim) -> Option<Duration> {
    claim.lock_delay().is_zero().then(|| claim.ttl().min(LONGEST))
}

/// Stands for a ticket where notifications may be missing. No ticket is negative.
const EVERYBODY: i64 = i64::MIN;

/// What a waiter is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// The number of the waiter's place.
    pub ticket: i64,
    /// What a release has granted to the waiter. `None`: the waiter must request the lock.
    pub granted: Option<PushedGrant>,
}

impl Notification {
    /// A notification that it is the turn of a waiter to request the lock.
    pub fn to_recheck(ticket: i64) -> Self {
        Self { ticket, granted: None }
    }

    /// A notification to all waiters of the client to request their locks, where others may have been missed.
    pub fn to_all() -> Self {
        Self::to_recheck(EVERYBODY)
    }

    /// Whether it is for all waiters of the client.
    pub fn is_to_all(&self) -> bool {
        self.ticket == EVERYBODY
    }

    /// A notification that a release has granted the lock to a waiter.
    pub fn of_grant(ticket: i64, granted: PushedGrant) -> Self {
        Self { ticket, granted: Some(granted) }
    }

    /// Parses a message: `TICKET`, or `TICKET:TOKEN:ENDS:LEASE:SEEN`, the times in microseconds. See
    /// [`PushedGrant::new`].
    pub fn parse(text: &str) -> Option<Self> {
        let (ticket, grant) =
            text.split_once(':').map_or((text, None), |(ticket, grant)| (ticket, Some(grant)));
        let ticket = ticket.parse().ok()?;
        let Some(grant) = grant else { return Some(Self::to_recheck(ticket)) };
        let mut numbers = grant.split(':').map(|part| part.parse::<u64>().ok());
        let (token, ends) = (FencingToken::new(numbers.next()??), numbers.next()??);
        let (lease, seen) = (Duration::from_micros(numbers.next()??), numbers.next()??);
        Some(Self::of_grant(ticket, PushedGrant::new(token, lease, ends, seen)))
    }

    /// Adds the number of the connection of the message, as in [`Heartbeat::over`].
    #[must_use]
    pub fn over(self, generation: u64) -> Self {
        Self { granted: self.granted.map(|granted| granted.over(generation)), ..self }
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
    fn heartbeat() -> Heartbeat {
        Heartbeat::new(5, at(10_000), 100_000_000).over(1)
    }

    fn ends(ends: u64) -> PushedGrant {
        PushedGrant::new(FencingToken::new(7), LEASE, ends, 5).over(1)
    }

    #[test]
    fn a_lease_counts_from_the_heartbeat_before_it() {
        let pushed = ends(104_200_000);
        assert_eq!(pushed.deadline(Some(&heartbeat()), at(11_200)), Some(valid_until(at(10_000), LEASE)));
        assert_eq!(pushed.deadline(Some(&heartbeat()), at(12_700)), None, "hardly any time is left");
        let eighth = valid_until(at(10_000), LEASE).before(LEASE / 8);
        assert_eq!(pushed.deadline(Some(&heartbeat()), eighth), None, "an eighth is too little");
        let more = pushed.deadline(Some(&heartbeat()), eighth.before(Duration::from_nanos(1)));
        assert_eq!(more, Some(valid_until(at(10_000), LEASE)));
        assert_eq!(pushed.deadline(None, at(11_200)), None);
    }

    #[test]
    fn a_lease_that_is_older_than_the_heartbeat_ends_as_much_earlier() {
        let deadline = valid_until(at(10_000), Duration::from_secs(1));
        assert_eq!(ends(101_000_000).deadline(Some(&heartbeat()), at(10_001)), Some(deadline));
        assert_eq!(ends(99_999_999).deadline(Some(&heartbeat()), at(10_001)), None, "it had ended before");
    }

    #[test]
    fn a_message_names_a_place_or_a_grant() {
        assert_eq!(Notification::parse("-7"), Some(Notification::to_recheck(-7)));
        let granted = PushedGrant::new(FencingToken::new(9), Duration::from_secs(3), 104_200_000, 5);
        let parsed = Notification::parse("7:9:104200000:3000000:5").unwrap();
        assert_eq!(parsed, Notification::of_grant(7, granted));
        assert_eq!(parsed.over(2), Notification::of_grant(7, granted.over(2)));
        for bad in ["", "x", ":", "7:", "7:9:104200000:3000000", "7:9:104200000:3000000:-5"] {
            assert_eq!(Notification::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_claim_with_a_lock_delay_is_only_notified() {
        let claim = |ttl| {
            let name = crate::LockName::new("a").unwrap();
            Claim::new(name, crate::Mode::Exclusive, ttl, crate::Wait::Forever, "test".into())
        };
        assert_eq!(provisional_lease(&claim(LEASE * 2)), Some(LONGEST));
        assert_eq!(provisional_lease(&claim(LEASE / 2)), Some(LEASE / 2));
        assert_eq!(provisional_lease(&claim(LEASE).with_lock_delay(LEASE)), None);
    }

    #[test]
    fn another_connection_has_another_clock_and_another_heartbeat_another_place() {
        for other in
            [PushedGrant { generation: 2, ..ends(104_200_000) }, PushedGrant { seen: 4, ..ends(104_200_000) }]
        {
            assert_eq!(other.deadline(Some(&heartbeat()), at(11_200)), None);
        }
    }
}
