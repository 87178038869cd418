//! Owners and clients as the databases store them.

use lockwell_core::OwnerId;
use uuid::Uuid;

/// The 128 bits as the type that databases have for them.
pub(crate) trait AsUuid {
    fn as_uuid(&self) -> Uuid;
}

impl AsUuid for OwnerId {
    fn as_uuid(&self) -> Uuid {
        self.as_u128().as_uuid()
    }
}

/// For the [names of clients](lockwell_core::backend::Waiters::client).
impl AsUuid for u128 {
    fn as_uuid(&self) -> Uuid {
        Uuid::from_u128(*self)
    }
}
