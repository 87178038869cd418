//! The server's clock.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use lockwell_core::backend::lock;
use lockwell_core::{Finding, Moment};

/// The server's clock, to show how long a lock has been held. No decision depends on it.
///
/// The latest known time of the server, in milliseconds, and when it was requested.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<(i64, Moment)>>);

impl ServerClock {
    /// The server wrote this time in answer to a request that was sent at that moment.
    pub(crate) fn saw(&self, millis: i64, sent: Moment) {
        *lock(&self.0) = Some((millis, sent));
    }

    pub(crate) fn is_known(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// The difference to the local clock; `None` if the server's time is not known yet.
    pub(crate) fn finding(&self) -> Option<Finding> {
        let (seen, sent) = (*lock(&self.0))?;
        let server = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(seen).ok()?);
        let ours = SystemTime::now() - Moment::now().since(sent);
        Some(Finding::clock(server, ours, ours))
    }

    /// How long ago the server wrote this time.
    pub(crate) fn since(&self, millis: i64) -> Duration {
        let seen = *lock(&self.0);
        let Some((seen, sent)) = seen else { return Duration::ZERO };
        let passed = i64::try_from(Moment::now().since(sent).as_millis()).unwrap_or(i64::MAX);
        Duration::from_millis(u64::try_from(seen.saturating_add(passed) - millis).unwrap_or(0))
    }
}
