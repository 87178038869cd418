//! How a lock is held.

use std::fmt;
use std::num::NonZeroU32;

use crate::{Error, ErrorKind};

/// How a claim holds its lock.
///
/// One type covers the mutex, the reader-writer lock and the semaphore, so a backend implements one acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Exclusive: a mutex, or the writer of a reader-writer lock.
    Exclusive,
    /// Shared with other readers, never with a writer.
    Shared,
    /// One of `limit` permits: a semaphore. Claims with another limit wait until those of this one have left.
    Permit {
        /// The number of permits that can be held at the same time.
        limit: NonZeroU32,
    },
}

impl Mode {
    /// Whether two claims of these modes use their name as the same kind of lock.
    ///
    /// A mutex and a reader-writer lock are one kind, since the mutex is a writer. A semaphore is another one,
    /// and each limit is a kind of its own. Claims of two kinds never hold a name at the same time.
    pub fn is_same_kind(self, other: Self) -> bool {
        match (self, other) {
            (Self::Permit { limit: a }, Self::Permit { limit: b }) => a == b,
            (Self::Permit { .. }, _) | (_, Self::Permit { .. }) => false,
            _ => true,
        }
    }

    /// Whether a claim of this mode may join `holders` claims that hold the name in mode `held`.
    pub fn may_join(self, held: Self, holders: usize) -> bool {
        match (self, held) {
            _ if holders == 0 => true,
            (Self::Shared, Self::Shared) => true,
            (Self::Permit { limit }, _) => self == held && holders < limit.get() as usize,
            _ => false,
        }
    }

    /// The error of a claim that does not wait, for a name that is in use in another mode. It names both.
    pub fn clash(in_use: Self, asked: Self) -> Error {
        let message = format!("the name is in use as {in_use}, and was asked for as {asked}");
        Error::new(ErrorKind::KindClash, message)
    }

    /// The mode as a number, for the records of backends: 0 is exclusive, -1 shared, any other the limit of a
    /// semaphore.
    pub fn code(self) -> i64 {
        match self {
            Self::Exclusive => 0,
            Self::Shared => -1,
            Self::Permit { limit } => i64::from(limit.get()),
        }
    }

    /// The mode with this [code](Self::code).
    pub fn from_code(code: i64) -> Option<Self> {
        match code {
            0 => Some(Self::Exclusive),
            -1 => Some(Self::Shared),
            limit => Some(Self::Permit { limit: NonZeroU32::new(u32::try_from(limit).ok()?)? }),
        }
    }

    /// The mode's name: `exclusive`, `shared` or `permit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permit { .. } => "permit",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permit { limit } => write!(f, "permit (limit {limit})"),
            other => f.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(limit: u32) -> Mode {
        Mode::Permit { limit: NonZeroU32::new(limit).unwrap() }
    }

    #[test]
    fn who_may_join_whom() {
        assert!(Mode::Exclusive.may_join(Mode::Exclusive, 0));
        assert!(!Mode::Exclusive.may_join(Mode::Exclusive, 1));
        assert!(!Mode::Exclusive.may_join(Mode::Shared, 1));
        assert!(!Mode::Shared.may_join(Mode::Exclusive, 1));
        assert!(Mode::Shared.may_join(Mode::Shared, 99));
        assert!(permit(2).may_join(permit(2), 1));
        assert!(!permit(2).may_join(permit(2), 2));
        for (other, held) in [(permit(3), permit(2)), (permit(2), permit(3)), (permit(9), Mode::Shared)] {
            assert!(!other.may_join(held, 1) && !held.may_join(other, 1), "{other} beside {held}");
            assert!(other.may_join(held, 0));
        }
    }

    #[test]
    fn codes_go_both_ways() {
        for mode in [Mode::Exclusive, Mode::Shared, permit(1), permit(u32::MAX)] {
            assert_eq!(Mode::from_code(mode.code()), Some(mode));
        }
        assert_eq!(Mode::from_code(-2), None);
        assert_eq!(Mode::from_code(1 << 32), None);
    }

    #[test]
    fn kinds_do_not_mix() {
        assert!(Mode::Exclusive.is_same_kind(Mode::Shared));
        assert!(permit(2).is_same_kind(permit(2)));
        assert!(!permit(2).is_same_kind(permit(3)));
        assert!(!permit(2).is_same_kind(Mode::Exclusive));
    }
}
