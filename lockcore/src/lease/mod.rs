//! Leases: how long a holder may rely on its lock, when to renew, and what ends a hold.
//!
//! [`state`] is a pure state machine of (time, event): it never reads a clock and does no I/O, so tests step
//! it through every order of events. [`HeldLock`] is one lease that its guard and the keeper share.
//!
//! The rules: validity ends at a deadline that is counted from the *start* of the last successful request; a
//! failed renewal is unknown, not lost, and the deadline stands; a lease that is lost never comes back.

mod held_lock;
mod state;

use std::time::Duration;

use crate::Moment;

pub(crate) use held_lock::{HeldLock, lost_at_work};
pub(crate) use state::{Advice, Event, Lease, Left, Limits};

/// Until when a holder may rely on a lease of `ttl` that was set or extended by a request sent at `sent`.
///
/// The server counts from the arrival of the request, which is later than `sent`. The margin of 1 % of the
/// ttl plus 2 ms allows for clocks that run at different rates (the figures of the Redlock description).
pub fn valid_until(sent: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2);
    sent.after(ttl.saturating_sub(drift))
}
