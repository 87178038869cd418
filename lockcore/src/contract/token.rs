//! Fencing tokens.

use std::fmt;
use std::num::TryFromIntError;

use serde::{Deserialize, Serialize};

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
/// Serde writes it as the number. Databases have signed integers of 64 bits, to which it converts; a feature
/// of this crate, `sqlx`, makes it a column of that type. The backends of this repository have no token that
/// is too high for it.
///
/// ```
/// # use lockwell_core as lockwell;
/// use lockwell::FencingToken;
/// let token = FencingToken::new(42);
/// let column = i64::try_from(token)?;
/// assert_eq!(FencingToken::try_from(column)?, token);
/// # Ok::<_, std::num::TryFromIntError>(())
/// ```
///
/// Source: Kleppmann, "How to do distributed locking" (2016).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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

/// Fails if the token is above [`i64::MAX`].
impl TryFrom<FencingToken> for i64 {
    type Error = TryFromIntError;

    fn try_from(token: FencingToken) -> Result<Self, TryFromIntError> {
        token.0.try_into()
    }
}

/// Fails if the number is negative.
impl TryFrom<i64> for FencingToken {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, TryFromIntError> {
        number.try_into().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_what_a_database_can_compare() {
        let highest = FencingToken::new(u64::MAX / 2);
        assert_eq!(i64::try_from(highest), Ok(i64::MAX));
        assert!(i64::try_from(highest.next(0)).is_err());
        assert!(FencingToken::try_from(-1).is_err());
    }

    #[test]
    fn the_next_token_is_always_higher() {
        assert_eq!(FencingToken::new(7).next(3), FencingToken::new(8));
        assert_eq!(FencingToken::new(7).next(100), FencingToken::new(100));
        assert_eq!(FencingToken::new(7).next(7).get(), 8);
    }
}
