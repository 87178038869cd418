//! The record of a holder at a server, as text.

use std::time::Duration;

use crate::{Claim, FencingToken, Mode};

/// The text that a backend stores at its server about a holder, for
/// [`inspect`](crate::DistributedLock::inspect) and for operators: `v1 TOKEN SINCE TTL MODE LABEL`, with
/// times in microseconds.
///
/// It is for servers that store values without a structure. The owner id is not part of it, since the server
/// must be able to compare it: store it separately.
///
/// ```
/// # use lockwell_core as lockwell;
/// use std::time::Duration;
/// use lockwell::backend::Record;
/// use lockwell::{FencingToken, Mode};
///
/// let ttl = Duration::from_secs(10);
/// let record = Record::new(FencingToken::new(7), 1_700_000_000_000_000, ttl, Mode::Exclusive, "web-1:4711");
/// let text = record.to_string();
/// assert_eq!(text, "v1 7 1700000000000000 10000000 0 web-1:4711");
/// assert_eq!(Record::parse(&text), Some(record));
/// assert_eq!(Record::parse("something else"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    token: FencingToken,
    since: u64,
    ttl: Duration,
    mode: Mode,
    label: String,
}

/// The prefix of every record in this format.
const VERSION: &str = "v1";

impl Record {
    /// The record of a holder. `since` is the server's time in microseconds.
    pub fn new(token: FencingToken, since: u64, ttl: Duration, mode: Mode, label: impl Into<String>) -> Self {
        Self { token, since, ttl, mode, label: label.into() }
    }

    /// The record of a claim that was granted with this token.
    pub fn of(claim: &Claim, token: FencingToken, since: u64) -> Self {
        Self::new(token, since, claim.ttl(), claim.mode(), claim.label())
    }

    /// Parses a record; `None` if the text is not a record, or has a later format.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ' ');
        if parts.next()? != VERSION {
            return None;
        }
        let token = FencingToken::new(parts.next()?.parse().ok()?);
        let since = parts.next()?.parse().ok()?;
        let ttl = Duration::from_micros(parts.next()?.parse().ok()?);
        let mode = Mode::from_code(parts.next()?.parse().ok()?)?;
        Some(Self::new(token, since, ttl, mode, parts.next()?))
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Since when the lock is held, by the server's clock, in microseconds.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// The lease.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The label of the holder.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { token, since, ttl, mode, label } = self;
        write!(f, "{VERSION} {} {since} {} {} {label}", token.get(), ttl.as_micros(), mode.code())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            token: u64,
            since: u64,
            millis in 0u64..100_000_000,
            permits in 0u32..50,
            label in "\\PC{0,40}",
        ) {
            let mode = NonZeroU32::new(permits).map_or(Mode::Shared, |limit| Mode::Permit { limit });
            let ttl = Duration::from_millis(millis);
            let record = Record::new(FencingToken::new(token), since, ttl, mode, label);
            prop_assert_eq!(Record::parse(&record.to_string()), Some(record));
        }
    }
}
