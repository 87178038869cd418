//! The server's clock, for showing how long a lock has been held. Nothing is decided by it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lockcore::{Finding, Moment};

/// The latest time of the server that we have seen, in milliseconds, and when we asked for it.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<(i64, Moment)>>);

impl ServerClock {
    /// The server wrote this time in answer to a request of that moment.
    pub(crate) fn saw(&self, millis: i64, sent: Moment) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((millis, sent));
    }

    /// How far it is from our own clock. `None`: it has not been seen.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let (seen, sent) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let server = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(seen).ok()?);
        let ours = SystemTime::now() - Moment::now().since(sent);
        Some(Finding::clock(server, ours, ours))
    }

    /// How long ago the server wrote this time.
    pub(crate) fn since(&self, millis: i64) -> Duration {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((seen, sent)) = seen else { return Duration::ZERO };
        let passed = i64::try_from(Moment::now().since(sent).as_millis()).unwrap_or(i64::MAX);
        Duration::from_millis(u64::try_from(seen.saturating_add(passed) - millis).unwrap_or(0))
    }
}
