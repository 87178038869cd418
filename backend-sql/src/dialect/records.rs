//! The records of locks, in a table of their own.
//!
//! A user without the right to create tables may find the tables of an earlier version, which had no records.
//! So nothing depends on this table but the promise.

use std::sync::Arc;

#[cfg(any(feature = "mysql", feature = "sqlite-unbundled"))]
use lockwell_core::ErrorKind;
use lockwell_core::{FencingToken, Grant, HoldId, LockName, Record, RecordKind, RecordWrite};
use uuid::Uuid;

#[cfg(any(feature = "mysql", feature = "sqlite-unbundled"))]
use crate::dialect::answers::meaning;
use crate::dialect::database::{Database, Outcome};

/// A write, for a request that may be repeated.
#[derive(Clone, Debug)]
pub struct OwnedWrite {
    pub(crate) grant: Grant,
    pub(crate) kind: RecordKind,
    number: u64,
    value: Arc<[u8]>,
}

impl OwnedWrite {
    pub(crate) fn new(grant: &Grant, write: RecordWrite<'_>) -> Self {
        Self { grant: grant.clone(), kind: write.kind, number: write.number, value: write.value.into() }
    }

    pub(crate) fn as_write(&self) -> RecordWrite<'_> {
        RecordWrite { kind: self.kind, number: self.number, value: &self.value }
    }

    /// The token in the lock's row, by which the grant is known from others of its claim.
    pub(crate) fn held_token(&self) -> i64 {
        self.grant.last_token().get().cast_signed()
    }

    /// The columns of the row, after the name and the kind: the hold, the number, the token and the value.
    pub(crate) fn columns(&self) -> (Uuid, i64, i64, &[u8]) {
        let hold = Uuid::from_u128(self.grant.hold_id().as_u128());
        let (number, token) = (self.number.cast_signed(), self.grant.token().get().cast_signed());
        (hold, number, token, &self.value)
    }
}

/// The hold that has written last, and the number of its write.
pub(crate) fn writer(hold: Uuid, number: i64) -> (HoldId, u64) {
    (HoldId::from_u128(hold.as_u128()), number.cast_unsigned())
}

/// A row as it was read: value, token, hold. It is empty if there is none.
pub(crate) type RecordRow = (Option<Vec<u8>>, Option<i64>, Option<Uuid>);

pub(crate) fn record((value, token, hold): RecordRow) -> Option<Record> {
    let token = FencingToken::new(token?.cast_unsigned());
    Record::read(value?, token, HoldId::from_u128(hold?.as_u128()))
}

/// Whether the answer to a look at the table says that there is none, or none of this form for this user.
#[cfg(any(feature = "mysql", feature = "sqlite-unbundled"))]
pub(crate) fn is_missing(error: &sqlx_core::Error) -> bool {
    let kind = error.as_database_error().map(|error| meaning(error).1);
    matches!(kind, Some(ErrorKind::Misconfigured | ErrorKind::Refused))
}

/// What is asked about records. Their kind is written as a word.
pub trait Records: Database {
    /// Creates the table where it alone is missing. [`check`](Database::check) has found out.
    fn create_records(&self, conn: &mut Self::Conn) -> impl Outcome<()>;

    /// Writes a record if its grant is the present one, and exclusive, under a lock of the lock's row. Returns
    /// the last writer; `None` if the lock is not held by this grant.
    fn write_record(&self, conn: &mut Self::Conn, write: &OwnedWrite) -> impl Outcome<Option<(HoldId, u64)>>;

    /// Reads a record; under a grant from the server that has the last write of the holder before. `None`: the
    /// claim of the grant does not hold the lock.
    fn read_record(
        &self,
        conn: &mut Self::Conn,
        name: &LockName,
        kind: RecordKind,
        under: Option<&Grant>,
    ) -> impl Outcome<Option<Option<Record>>>;

    /// The names of the locks that have a record.
    fn recorded(&self, conn: &mut Self::Conn, kind: RecordKind) -> impl Outcome<Vec<String>>;

    /// Deletes the rows of records that were removed, of locks that nobody holds.
    fn purge_records(&self, conn: &mut Self::Conn) -> impl Outcome<()>;
}
