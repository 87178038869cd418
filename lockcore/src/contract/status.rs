//! What the server says about a lock: who holds it, and who waits.

use std::time::Duration;

use crate::contract::label::split;
use crate::{Claim, FencingToken, LockName, Mode, TraceParent};

/// One holder of a lock, as the server knows it.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// A human-readable text that names the holder.
    pub label: String,
    /// What the holder does, if its request [says so](crate::LockRequest::traceparent).
    pub traceparent: Option<TraceParent>,
    /// How it holds the lock.
    pub mode: Mode,
    /// The time left of the lease, by the server's clock. `Duration::MAX` if there is no lease: another
    /// program holds the lock, until somebody frees it.
    pub ttl_left: Duration,
    /// How long it has held the lock, by the server's clock. On etcd, which records no time, it is by the
    /// wall clocks of the holder and of the client that asks.
    pub held_for: Duration,
}

impl Holder {
    /// A holder as a backend read it, with the label of its [claim](crate::Claim::label).
    pub fn new(token: FencingToken, label: impl Into<String>, mode: Mode, ttl_left: Duration) -> Self {
        let (label, traceparent) = split(label.into());
        Self { token, label, traceparent, mode, ttl_left, held_for: Duration::ZERO }
    }

    /// Whether the grant may be that of this claim, or of one that does not differ to a reader of traces.
    pub(crate) fn may_be(&self, claim: &Claim) -> bool {
        let (label, traceparent) = split(String::from(claim.label()));
        label == self.label && traceparent == self.traceparent
    }

    /// Adds how long the lock has been held.
    #[must_use]
    pub fn held_for(mut self, held_for: Duration) -> Self {
        self.held_for = held_for;
        self
    }
}

/// A claim that waits for a lock, as the server knows it.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingClaim {
    /// A human-readable text that names who waits.
    pub label: String,
    /// What it waits for, if its request [says so](crate::LockRequest::traceparent).
    pub traceparent: Option<TraceParent>,
    /// How it will hold the lock.
    pub mode: Mode,
    /// How long it has been in the queue, by the same clocks as [`Holder::held_for`]. `None`: the server does
    /// not know.
    pub waited: Option<Duration>,
}

impl WaitingClaim {
    /// A waiter as a backend read it, with the label of its [claim](crate::Claim::label).
    pub fn new(label: impl Into<String>, mode: Mode, waited: Option<Duration>) -> Self {
        let (label, traceparent) = split(label.into());
        Self { label, traceparent, mode, waited }
    }
}

/// Who holds a lock and who waits for it. It may be outdated when it is read: use it for display, not for
/// decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The lock.
    pub name: LockName,
    /// Its holders.
    pub holders: Vec<Holder>,
    /// How many claims are in its queue: of the tasks of a process that want it alone, one, unless they have
    /// [`server_order`](crate::Locks::server_order). Where a majority of servers decides, a server that is
    /// late can still count a claim that has left.
    pub waiters: usize,
    /// The first of these claims, at most [`SHOWN`](Self::SHOWN), in the order in which the server has them.
    /// Empty where it does not know them: Redlock has a queue on each server.
    pub waiting: Vec<WaitingClaim>,
    /// How long the waiter that has waited longest has been in the queue, by the same clocks as
    /// `Holder::held_for`. `None` if no claim waits, or if the server does not know. If a waiter lost its
    /// place, for example in a crash of the server, the time counts from its new place.
    pub longest_wait: Option<Duration>,
    /// For how long it is not known who else holds the lock: the server may have forgotten grants, and grants
    /// nothing for this time. `None`: the holders are all that there are.
    pub unknown_for: Option<Duration>,
}

impl LockStatus {
    /// How many waiters are shown at most.
    pub const SHOWN: usize = 16;

    /// The status as a backend read it.
    pub fn new(name: LockName, holders: Vec<Holder>, waiters: usize) -> Self {
        Self { name, holders, waiters, waiting: Vec::new(), longest_wait: None, unknown_for: None }
    }

    /// Adds the first waiters, in order, and with them the [`longest_wait`](Self::longest_wait).
    #[must_use]
    pub fn waiting(mut self, waiting: impl IntoIterator<Item = WaitingClaim>) -> Self {
        self.waiting = waiting.into_iter().take(Self::SHOWN).collect();
        let longest_wait = self.waiting.iter().filter_map(|one| one.waited).max();
        self.longest_wait(longest_wait)
    }

    /// Adds how long the waiter that has waited longest has been in the queue.
    #[must_use]
    pub fn longest_wait(mut self, longest_wait: Option<Duration>) -> Self {
        self.longest_wait = longest_wait;
        self
    }

    /// Adds for how long the server may have forgotten holders.
    #[must_use]
    pub fn unknown_for(mut self, unknown_for: Option<Duration>) -> Self {
        self.unknown_for = unknown_for;
        self
    }

    /// Whether the lock is known to be held.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether the lock is known to be held by nobody. A lock may be neither held nor free, if that is
    /// [unknown](Self::unknown_for).
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.unknown_for.is_none()
    }
}
