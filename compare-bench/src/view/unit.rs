//! What a figure is.

use crate::record::Quantity;
use crate::stats::interval::Interval;

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds.
    Time,
    /// Something each second. The only one of which more is better.
    Rate,
    /// Requests, or round trips.
    Count,
}

impl From<Quantity> for Unit {
    fn from(quantity: Quantity) -> Self {
        match quantity {
            Quantity::LatencyUs | Quantity::CpuUs => Self::Time,
            Quantity::PerSecond => Self::Rate,
        }
    }
}

/// A median, and the interval of the rounds around it.
pub(super) type Figure = (f64, Option<Interval>);
