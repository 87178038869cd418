//! The driver for SQLite.

use std::fmt;
use std::sync::atomic::AtomicBool;

use super::connection::Opening;
use super::statements::Statements;
use crate::dialect::hints::Hints;
use crate::ids::AsUuid;
use lockwell_core::Claim;

/// The SQLite dialect.
pub struct Sqlite {
    pub(super) opening: Opening,
    /// Whether missing tables are created.
    pub(super) create: bool,
    pub(super) sql: Statements,
    /// `Waited` is noted for a lock that was found held, too. A claim for a lock that a release of this process
    /// has granted to a waiter takes a place with its first request.
    pub(super) hints: Hints,
    /// Whether this user may not send to the sockets of others.
    pub(super) sends_in_vain: AtomicBool,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sqlite").field(&self.opening.connect.get_filename()).finish()
    }
}

pub(super) fn json<T: serde::Serialize + ?Sized>(value: &T) -> sqlx_core::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx_core::Error::Encode(error.into()))
}

/// The owners of claims, as statements about several claims read them: 16 bytes each.
pub(super) fn owners<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Vec<u8> {
    claims.into_iter().flat_map(|claim| claim.owner().as_uuid().into_bytes()).collect()
}
