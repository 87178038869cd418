//! The identity of an acquisition.

use std::fmt;

use crate::system::{hooks, unique_bits};

/// The identity of one acquisition: 128 random bits, made before the first byte is sent to a server.
///
/// It belongs to the acquisition, never to a process, a task or an object. So a holder that has lost its lock
/// can never release the lock of its successor. Anyone who knows the id can release the lock, so it is
/// secret: `Debug` hides it, and it has no `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId(u128);

impl OwnerId {
    /// A new identity from the operating system's [random bits](crate::backend::unique_bits).
    pub fn random() -> Self {
        let owner = Self(unique_bits());
        if let Some(hooks) = hooks() {
            (hooks.new_owner)(owner.0);
        }
        owner
    }

    /// The 128 bits, for a backend to write to its server: as a number, as [bytes](u128::to_be_bytes), or as
    /// the 32 hexadecimal digits of `format!("{:032x}", owner.as_u128())`.
    pub fn as_u128(&self) -> u128 {
        self.0
    }

    /// The identity that a backend read back from its server.
    pub fn from_u128(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_it_and_no_two_are_alike() {
        let (a, b) = (OwnerId::random(), OwnerId::random());
        assert_ne!(a, b);
        assert_eq!(format!("{a:?}"), "OwnerId(..)");
        assert_eq!(OwnerId::from_u128(a.as_u128()), a);
    }
}
