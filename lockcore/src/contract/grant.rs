//! The answers of backends.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::{Claim, Error, ErrorKind, FencingToken, HoldId, Moment, Result, life};

/// A granted claim.
#[derive(Clone)]
pub struct Grant {
    claim: Claim,
    token: FencingToken,
    last_token: FencingToken,
    sent: Moment,
    deadline: Moment,
    provisional: bool,
    /// The number of this hold among those of its claim.
    hold: u64,
    record: Option<Arc<dyn Any + Send + Sync>>,
}

impl Grant {
    /// A grant that answers a request sent at `sent`.
    ///
    /// `last_token` is the present value of the name's counter. If the claim [reserves](Claim::tokens)
    /// several tokens, the counter has been raised by this number, and the grant begins with the lowest of
    /// them.
    ///
    /// `sent` must be read *before* the first byte of the request that set or extended the lease is sent. The
    /// server starts the lease later than that, so the validity ends before the lease at the server ends.
    pub fn new(claim: &Claim, last_token: FencingToken, sent: Moment) -> Self {
        let token = FencingToken::new(last_token.get().saturating_sub(u64::from(claim.tokens().get() - 1)));
        let grant = Self {
            claim: claim.clone(),
            token,
            last_token,
            sent,
            deadline: sent,
            provisional: false,
            hold: 0,
            record: None,
        };
        grant.with_deadline(life::valid_until(sent, claim.ttl()))
    }

    /// This grant with fewer tokens than the claim wants: so many, of which the last is the same.
    #[must_use]
    pub fn with_tokens(self, tokens: NonZeroU32) -> Self {
        let many = tokens.min(self.claim.tokens()).get();
        Self { token: FencingToken::new(self.last_token.get().saturating_sub(u64::from(many - 1))), ..self }
    }

    /// Attaches data that the backend needs to find its record at the server.
    #[must_use]
    pub fn with_record(mut self, record: Arc<dyn Any + Send + Sync>) -> Self {
        self.record = Some(record);
        self
    }

    /// Sets the end of the lease, if it does not follow from the claim's ttl, for backends whose leases
    /// depend on a session. The validity ends earlier by the claim's [lock delay](Claim::lock_delay).
    #[must_use]
    pub fn with_deadline(mut self, deadline: Moment) -> Self {
        self.deadline = deadline.before(self.claim.lock_delay());
        self
    }

    /// Sets the end of a provisional lease, which a release has set for a waiter, and which is shorter than
    /// the claim's ttl. The keeper soon extends it to the whole ttl, unless the lock is released before that.
    #[must_use]
    pub fn provisional(self, deadline: Moment) -> Self {
        Self { provisional: true, ..self.with_deadline(deadline) }
    }

    /// Whether the lease is provisional.
    pub fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// This grant after a downgrade: of the same owner, with the same token, to the lock as a reader.
    #[must_use]
    pub fn downgraded(&self) -> Self {
        Self { claim: self.claim.downgraded(), hold: 0, ..self.clone() }
    }

    /// The grant for the next task of this process: with the next token of the block, or with the same one on
    /// a backend without blocks.
    #[must_use]
    pub(crate) fn successor(&self) -> Self {
        let token = FencingToken::new(self.token.get() + u64::from(self.token < self.last_token));
        Self { token, hold: self.hold.wrapping_add(1), ..self.clone() }
    }

    /// Notes that something at the server depends on this hold, such as an open transaction that has verified
    /// it: so the lock is not passed on to another task of this process, and its release goes to the server.
    /// A backend calls it *before* it sends what depends on the hold, since tasks that pass a lock on have
    /// one owner, and the server cannot tell them apart.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock has been passed on already.
    pub fn bind(&self) -> Result<()> {
        if self.claim.life(|life| life.holds.bind(self.hold)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Lost, "the hold has ended: another task of this process has got the lock"))
    }

    /// The lock is passed on, and the [successor](Self::successor) of this grant is that of the present hold.
    /// False if something at the server depends on this one.
    pub(crate) fn hand_on(&self) -> bool {
        self.claim.life(|life| life.holds.move_on(self.hold))
    }

    /// This grant after renewals, if there were any: valid from `sent` to `deadline`. A renewal makes a
    /// whole lease of a provisional one.
    #[must_use]
    pub(crate) fn renewed(self, sent: Moment, deadline: Moment) -> Self {
        Self { sent, deadline, provisional: self.provisional && deadline <= self.deadline, ..self }
    }

    /// The claim that was granted.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The number of this hold among those of its claim.
    pub(crate) fn hold(&self) -> u64 {
        self.hold
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The identity of the hold, which is not secret: see [`LockGuard::hold_id`](crate::LockGuard::hold_id).
    pub fn hold_id(&self) -> HoldId {
        // Each token of a block has its own: the ids of a claim follow each other.
        let ahead = self.last_token.get().saturating_sub(self.token.get());
        HoldId::from_u128(self.claim.hold_id().as_u128().wrapping_add(ahead.into()))
    }

    /// The highest token that is reserved for this grant, which the server has in its record of the holder.
    /// It equals the [`token`](Self::token), unless the claim [reserves](Claim::tokens) more than one.
    pub fn last_token(&self) -> FencingToken {
        self.last_token
    }

    /// The start of the validity: when the latest request was sent that set or extended the lease.
    pub fn sent(&self) -> Moment {
        self.sent
    }

    /// The end of the validity. From then on the lock is not held any more, unless the lease is renewed.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// The data that the backend attached, if it is a `T`.
    pub fn record<T: 'static>(&self) -> Option<&T> {
        self.record.as_deref().and_then(|record| (record as &dyn Any).downcast_ref())
    }
}

impl AsRef<Self> for Grant {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("claim", &self.claim)
            .field("token", &self.token)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The answer to a renewal of one lease.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease of [`Claim::ttl`] now lasts until this deadline, counted from *before* the request was sent
    /// (see [`valid_until`](crate::backend::valid_until)). It is the end of the whole lease; lockcore
    /// subtracts the [lock delay](Claim::lock_delay).
    Renewed(Moment),
    /// The server says that the claim no longer holds the lock.
    Lost,
    /// The outcome is unknown. The old deadline stands, and the keeper tries again.
    Unknown(Error),
}

impl Renewal {
    /// The answers to the renewal of all these leases, if none of them has an answer for this reason.
    pub fn all_unknown<T>(leases: &[T], reason: &Error) -> Vec<Self> {
        leases.iter().map(|_| Self::Unknown(reason.duplicate())).collect()
    }
}
