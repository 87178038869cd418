//! Points in time.
//!
//! A lease continues while a laptop sleeps or a virtual machine is suspended. So the clock that decides
//! whether a lock is still held must continue, too. [`std::time::Instant`] stops during suspend on Linux and
//! macOS. [`Moment`] is `CLOCK_BOOTTIME` on Linux and `CLOCK_MONOTONIC` on macOS, which continue. The wall
//! clock is never used, since it can be stepped.

use std::time::Duration;

/// A point in time on this machine's boot clock, with nanosecond resolution.
///
/// Moments of two machines, or of two boots, cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Whether the processes of a host share the clock's zero: they do on Linux and macOS. Elsewhere each has
    /// a clock of its own.
    pub const IS_SHARED: bool =
        cfg!(any(target_os = "linux", target_os = "android", target_vendor = "apple"));

    /// The time now.
    pub fn now() -> Self {
        Self(boot_nanos())
    }

    /// This moment plus `span`; [`Moment::NEVER`] where that is beyond the clock's range.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// This moment minus `span`, or the clock's zero.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }

    /// How much later this moment is than `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time left from now to this moment; zero if it has passed.
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Whether this moment has passed.
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }

    /// The moment that is so many nanoseconds after the clock's zero, which the processes of a host may
    /// [share](Self::IS_SHARED).
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// How many nanoseconds this moment is after the clock's zero.
    pub fn as_nanos(self) -> u64 {
        self.0
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// It goes on while the machine sleeps; that of `Instant` does not.
#[cfg(target_vendor = "apple")]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn boot_nanos() -> u64 {
    let now = rustix::time::clock_gettime(CLOCK);
    // Both parts are non-negative: the clock counts from the boot.
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or_default()
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn boot_nanos() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // An offset keeps `before` meaningful early in the life of the process.
    const HOUR: u64 = 3_600_000_000_000;
    HOUR + nanos(START.get_or_init(Instant::now).elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let now = Moment::now();
        assert_eq!(now.after(Duration::MAX), Moment::NEVER);
        assert_eq!(now.since(now.after(Duration::from_secs(1))), Duration::ZERO);
        assert_eq!(now.after(Duration::from_secs(2)).since(now), Duration::from_secs(2));
        assert!(now.before(Duration::from_nanos(1)) < now);
        assert!(now.has_passed());
        assert!(!Moment::NEVER.has_passed());
    }
}
