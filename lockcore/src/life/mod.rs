//! The life of a claim, and how long a holder may rely on its lock.
//!
//! [`Life`] and the [`Lease`] in it are pure state machines of (time, event): they never read a clock and do no
//! I/O, so tests step them through every order of events.
//!
//! The rules of a lease: validity ends at a deadline that is counted from the *start* of the last successful
//! request; a failed renewal is unknown, not lost, and the deadline stands; a lease that is lost never comes back.
//!
//! Those of a life: a claim that was sent is released unless the server says that it holds nothing; it is granted
//! or given up, and never both.

mod holds;
mod lease;
mod state;

use std::time::Duration;

use crate::Moment;

pub(crate) use lease::{Advice, Event, Lease, Left, Limits};
pub(crate) use state::{Act, BEGUN, Life, Next, Now};

/// Until when a holder may rely on a lease of `ttl` that was set or extended by a request sent at `sent`.
///
/// The server counts from the arrival of the request, which is later than `sent`. The margin of 1 % of the
/// ttl plus 2 ms allows for clocks that run at different rates (the figures of the Redlock description).
pub fn valid_until(sent: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2);
    sent.after(ttl.saturating_sub(drift))
}
