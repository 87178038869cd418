//! The identity of an acquisition.

use std::fmt;

use uuid::Uuid;

/// The identity of one acquisition: 128 random bits, made before the first byte is sent to a server.
///
/// It belongs to the acquisition, never to a process, a task or an object: a holder that has lost its lock can then
/// never release its successor's. Whoever knows it can release the lock, so it is a secret: `Debug` hides it, and it
/// has no `Display`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId(Uuid);

impl OwnerId {
    /// A new identity from the thread's cryptographic random generator.
    pub fn random() -> Self {
        let owner = Self(Uuid::from_u128(rand::random()));
        #[cfg(feature = "conformance")]
        crate::conformance::canary::note(owner.0);
        owner
    }

    /// The 128 bits, for a backend to write to its server.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// The identity that a backend read back from its server.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
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
        assert_eq!(OwnerId::from_uuid(a.as_uuid()), a);
    }
}
