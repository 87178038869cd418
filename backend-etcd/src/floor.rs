//! The floor of all tokens, which keeps them rising when the servers have lost revisions.
//!
//! A token is the create revision of a key plus the floor. Revisions go back when a snapshot is restored. A
//! client notices that: a later request is answered at a lower revision than an earlier one. It then raises
//! the floor, which is a key, by more than what was lost. Each claim that enters its queue checks in the same
//! transaction that it knows the floor.
//!
//! If no client of before has asked since the servers were restored, nobody knows what was lost. So whoever
//! restores a snapshot without `--bump-revision` writes a higher floor, as docs/etcd.md says.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use lockwell_core::backend::lock;
use lockwell_core::{Error, ErrorKind, Result};

use crate::messages::{Compare, KeyValue, one};

/// Higher ones would leave no room for revisions.
const HIGHEST: i64 = i64::MAX / 2;

/// The floor as it is stored.
///
/// An operator may have written it with spaces, or a line feed after it. So it is compared by its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    number: i64,
    /// `None`: there is no such key.
    text: Option<Arc<[u8]>>,
}

impl Stored {
    /// The floor as a client writes it.
    pub(crate) fn of(number: i64) -> Self {
        let text = (number != 0).then(|| number.to_string().into_bytes().into());
        Self { number, text }
    }

    pub(crate) fn read(found: Option<&KeyValue>) -> Result<Self> {
        let Some(KeyValue { value, .. }) = found else { return Ok(Self::default()) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok());
        match number.filter(|number| (0..=HIGHEST).contains(number)) {
            Some(number) => Ok(Self { number, text: Some(value.as_slice().into()) }),
            None => Err(Error::new(
                ErrorKind::Misconfigured,
                "the key PREFIX/.floor, below which no token may be, holds no number: write one that is as high \
                 as the last token",
            )),
        }
    }

    pub(crate) fn number(&self) -> i64 {
        self.number
    }

    /// Whether this is what was found.
    pub(crate) fn is(&self, found: Option<&KeyValue>) -> bool {
        found.map(|kv| kv.value.as_slice()) == self.text.as_deref()
    }

    /// The condition that it is still stored.
    pub(crate) fn condition(&self, key: &str) -> Compare {
        match &self.text {
            None => Compare::absent(one(key)),
            Some(text) => Compare::value(key, text),
        }
    }
}

/// What one client knows.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    known: Mutex<Stored>,
    /// The highest revision of an answer.
    seen: AtomicI64,
}

/// The revision that any later answer must have reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(i64);

impl Floor {
    pub(crate) fn known(&self) -> Stored {
        lock(&self.known).clone()
    }

    pub(crate) fn set_known(&self, floor: Stored) {
        *lock(&self.known) = floor;
    }

    /// Read before a request is sent.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.seen.load(Ordering::Acquire))
    }

    /// Takes the revision of a linearizable answer. False if the servers have lost revisions.
    pub(crate) fn note(&self, sent: Mark, revision: i64) -> bool {
        self.seen.fetch_max(revision, Ordering::AcqRel);
        revision >= sent.0
    }

    /// No token was higher, as far as this client knows.
    pub(crate) fn highest(&self) -> i64 {
        self.known().number.saturating_add(self.seen.load(Ordering::Acquire))
    }

    /// The lowest floor with which all tokens are above the highest one of before, which was read before the
    /// revision was asked for. `None` if the stored floor is enough.
    pub(crate) fn needed(highest: i64, stored: i64, now: i64) -> Option<i64> {
        (stored.saturating_add(now) < highest).then(|| highest.saturating_sub(now).saturating_add(1))
    }

    /// After the floor was raised: revisions count from here.
    pub(crate) fn begin_at(&self, floor: Stored, revision: i64) {
        // In this order: another task must not add the new floor to the old revision.
        self.seen.store(revision, Ordering::Release);
        self.set_known(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_revisions_raise_the_floor_above_all_tokens() {
        let floor = Floor::default();
        assert!(floor.note(floor.mark(), 100));
        let sent = floor.mark();
        assert!(floor.note(sent, 100) && floor.note(sent, 120));
        assert!(!floor.note(sent, 40), "a snapshot was restored");
        let raised = Floor::needed(floor.highest(), 0, 41).unwrap();
        assert!(raised + 41 > 120, "{raised}");
        assert_eq!(Floor::needed(floor.highest(), raised, 41), None, "another client has raised it");
        floor.begin_at(Stored::of(raised), 41);
        let highest = floor.highest();
        assert!(floor.note(floor.mark(), 43));
        assert_eq!(Floor::needed(highest, raised, 42), None, "another answer came meanwhile");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let read =
            |value: &[u8]| Stored::read(Some(&KeyValue { value: value.to_vec(), ..KeyValue::default() }));
        assert_eq!(Stored::read(None).unwrap(), Stored::of(0));
        assert_eq!(read(b"70").unwrap(), Stored::of(70));
        let by_hand = read(b"70\n").unwrap();
        assert!(by_hand.number() == 70 && by_hand != Stored::of(70));
        for value in [&b""[..], b"-1", b"x", b"\xff", i64::MAX.to_string().as_bytes()] {
            assert_eq!(read(value).unwrap_err().kind(), ErrorKind::Misconfigured, "{value:?}");
        }
    }
}
