//! The findings of an examination of a server.

use std::fmt;
use std::time::{Duration, SystemTime};

/// The difference of two clocks from which on a finding reports it.
const SKEW: Duration = Duration::from_secs(1);

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// Locks work, but a setting makes them weaker or slower than they could be, or the setting could not be
    /// checked.
    Doubtful,
    /// Locks can be lost or granted twice.
    Bad,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::Doubtful => "doubtful",
            Self::Bad => "bad",
        })
    }
}

/// One thing that was checked when a server was [examined](crate::DistributedLock::examine).
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked, in a word: `persistence`, `eviction`, `replication`, `clock`, `session`, `rights`,
    /// `push`, ...
    pub subject: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// What to do about it. Empty for a good finding.
    pub remedy: String,
}

impl Finding {
    /// The setting is as it should be.
    pub fn good(subject: &'static str, message: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Good, message: message.into(), remedy: String::new() }
    }

    /// The setting is not as it should be, or is unknown.
    pub fn doubtful(subject: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Doubtful, message: message.into(), remedy: remedy.into() }
    }

    /// Locks can be lost or granted twice.
    pub fn bad(subject: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { subject, severity: Severity::Bad, message: message.into(), remedy: remedy.into() }
    }

    /// Compares the server's clock, which showed `server`, with the local clock, which was between `asked`
    /// and `answered`. Leases depend on the server's clock only, so a difference does no harm by itself. But
    /// a wrong clock is likely to be corrected by a step, and a step can end leases early.
    pub fn clock(server: SystemTime, asked: SystemTime, answered: SystemTime) -> Self {
        let ahead = server.duration_since(answered).unwrap_or_default();
        let behind = asked.duration_since(server).unwrap_or_default();
        let (off, way) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
        if off <= SKEW {
            return Self::good("clock", "the server's clock is ours, within a second");
        }
        let off = humantime::format_duration(Duration::from_millis(
            u64::try_from(off.as_millis()).unwrap_or(u64::MAX),
        ));
        Self::doubtful(
            "clock",
            format!("the server's clock is {off} {way} ours"),
            "let NTP or chrony slew both clocks: a server's clock that steps forward ends leases early",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_time_of_the_question() {
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        let off = |server| Finding::clock(at(server), at(100), at(104));
        for near in [99, 100, 102, 104, 105] {
            assert_eq!(off(near).severity, Severity::Good, "{near}");
        }
        assert_eq!(off(94).message, "the server's clock is 6s behind ours");
        assert_eq!(off(110).message, "the server's clock is 6s ahead of ours");
    }
}
