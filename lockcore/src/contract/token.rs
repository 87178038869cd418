//! Fencing tokens.

use std::fmt;

/// A number that rises strictly with every grant of a lock name.
///
/// It rises across holders, modes, releases, server restarts and re-creation of the lock's record. A resource
/// that remembers the highest token that it has seen can refuse a holder that was paused and has lost its
/// lock.
///
/// The rule at the resource: accept a token that is *higher* than the highest seen. Accept an equal token
/// only from the holder that sent it first. Do not accept "higher or equal" from any holder: after a failover
/// of an asynchronously replicated store, two holders may have the same number.
///
/// Source: Kleppmann, "How to do distributed locking" (2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The token that follows this one: one more, or `floor` where that is higher.
    ///
    /// With the time in microseconds as the floor, tokens still rise after the record of the last token was
    /// purged, flushed or restored from an old backup.
    #[must_use]
    pub fn next(self, floor: u64) -> Self {
        Self(self.0.saturating_add(1).max(floor))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_token_is_always_higher() {
        assert_eq!(FencingToken::new(7).next(3), FencingToken::new(8));
        assert_eq!(FencingToken::new(7).next(100), FencingToken::new(100));
        assert_eq!(FencingToken::new(7).next(7).get(), 8);
    }
}
