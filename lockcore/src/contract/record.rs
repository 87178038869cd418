//! Records: a small value for each lock, which only its present holder can write.

use crate::{Error, ErrorKind, FencingToken, Grant, HoldId, Result};

/// Which record of a lock. They are apart: the record of its jobs is not the one of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// What the application writes.
    Value,
    /// Which jobs have run under the lock.
    Job,
}

impl RecordKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Value, Self::Job];

    /// The word for keys and paths at the server.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Value => "record",
            Self::Job => "job",
        }
    }
}

/// What a holder writes.
///
/// A record of values to read, so its fields are public.
#[derive(Clone, Copy, Debug)]
pub struct RecordWrite<'a> {
    /// Which record.
    pub kind: RecordKind,
    /// Rises with each write of a hold, from 1. So a late copy of an earlier write changes nothing.
    pub number: u64,
    /// The new value. An empty one removes the record.
    pub value: &'a [u8],
}

impl RecordWrite<'_> {
    /// For backends: the answer to this write, when the server has looked and written. `found` is the last
    /// writer, and the number of its write; `None` if the grant is not the present one, or not exclusive.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) and [`Conflict`](ErrorKind::Conflict): a later write of this hold was first.
    pub fn answer(&self, grant: &Grant, found: Option<(HoldId, u64)>) -> Result<()> {
        match found {
            // An earlier attempt without an answer may have written.
            None => Err(Error::new(ErrorKind::Lost, "the lock is not held alone any more")),
            Some(last) if last == (grant.hold_id(), self.number) => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Conflict, "a later write of this hold came first")),
        }
    }
}

/// What was written under a lock. It says that its writer held the lock then, not that it still does.
///
/// A record of values to read, so its fields are public; later versions may add some.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The value. It is not empty.
    pub value: Vec<u8>,
    /// The token of the hold that has written it.
    pub token: FencingToken,
    /// The hold that has written it.
    pub hold: HoldId,
}

impl Record {
    /// The longest value.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// A record as a backend read it. `None` if the value is empty: it was removed.
    pub fn read(value: Vec<u8>, token: FencingToken, hold: HoldId) -> Option<Self> {
        (!value.is_empty()).then_some(Self { value, token, hold })
    }
}

/// A record as a server without columns stores it: `HOLD:NUMBER:TOKEN:VALUE`.
///
/// ```
/// # use lockwell_core as lockwell;
/// use lockwell::backend::StoredRecord;
/// let stored = StoredRecord::parse(b"0000000000000000000000000000002a:3:17:a:b\0")?;
/// assert_eq!((stored.hold.as_u128(), stored.number, stored.token.get()), (42, 3, 17));
/// assert_eq!(stored.value, b"a:b\0");
/// # Ok::<_, lockwell::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRecord {
    /// The hold that has written it.
    pub hold: HoldId,
    /// The number of the write.
    pub number: u64,
    /// The token of the hold.
    pub token: FencingToken,
    /// The value, empty if the record was removed.
    pub value: Vec<u8>,
}

impl StoredRecord {
    /// The bytes to store for a write.
    pub fn text(grant: &Grant, write: &RecordWrite<'_>) -> Vec<u8> {
        let mut text = format!("{}:{}:{}:", grant.hold_id(), write.number, grant.token()).into_bytes();
        text.extend_from_slice(write.value);
        text
    }

    /// Reads the stored bytes.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if another program has written them.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut parts = text.splitn(4, |byte| *byte == b':');
        let mut number = || std::str::from_utf8(parts.next()?).ok().map(str::to_owned);
        let (hold, count, token) = (number(), number(), number());
        let read = || {
            let (hold, number) = (hold?.parse().ok()?, count?.parse().ok()?);
            let token = FencingToken::new(token?.parse().ok()?);
            Some(Self { hold, number, token, value: parts.next()?.to_vec() })
        };
        read().ok_or_else(|| {
            Error::new(ErrorKind::Misconfigured, "the record of the lock was written by another program")
        })
    }

    /// The last writer, and the number of its write, for [`RecordWrite::answer`].
    pub fn writer(&self) -> (HoldId, u64) {
        (self.hold, self.number)
    }

    /// Whether this write is to be stored in its place: not if it is a late copy, or a repetition.
    pub fn is_before(&self, grant: &Grant, write: &RecordWrite<'_>) -> bool {
        self.hold != grant.hold_id() || self.number < write.number
    }

    /// The record for its reader.
    pub fn record(self) -> Option<Record> {
        Record::read(self.value, self.token, self.hold)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Claim, LockName, Mode, Moment, Wait};

    #[test]
    fn what_is_stored_is_read_again() {
        let name = LockName::new("a").unwrap();
        let claim = Claim::new(name, Mode::Exclusive, Duration::from_secs(1), Wait::No, "test".into());
        let grant = Grant::new(&claim, FencingToken::new(7), Moment::now());
        for value in [&b""[..], b":", b"a:b:c:d", &[0, 255, b':', 10]] {
            let write = RecordWrite { kind: RecordKind::Value, number: 3, value };
            let stored = StoredRecord::parse(&StoredRecord::text(&grant, &write)).unwrap();
            assert_eq!((stored.writer(), &*stored.value), ((grant.hold_id(), 3), value));
            assert!(!stored.is_before(&grant, &write), "a repetition");
            assert!(stored.is_before(&grant, &RecordWrite { number: 4, ..write }));
            assert_eq!(stored.record().is_none(), value.is_empty());
        }
        for bad in [&b""[..], b"a", b"1:2:3:x", b"0000000000000000000000000000002a:3:17"] {
            assert_eq!(StoredRecord::parse(bad).unwrap_err().kind(), ErrorKind::Misconfigured);
        }
    }
}
