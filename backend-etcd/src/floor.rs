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

use crate::messages::{Compare, KeyValue};

/// What one client knows.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    known: AtomicI64,
    /// The highest revision of an answer.
    seen: AtomicI64,
}

/// The revision that any later answer must have reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark(i64);

impl Floor {
    pub(crate) fn known(&self) -> i64 {
        self.known.load(Ordering::Acquire)
    }

    pub(crate) fn set_known(&self, floor: i64) {
        self.known.store(floor, Ordering::Release);
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

    /// The lowest floor with which all tokens are above those of before: `None` if this one is enough.
    pub(crate) fn needed(&self, stored: i64, now: i64) -> Option<i64> {
        let highest = self.known().saturating_add(self.seen.load(Ordering::Acquire));
        (stored.saturating_add(now) < highest).then(|| highest.saturating_sub(now).saturating_add(1))
    }

    /// After the floor was raised: revisions count from here.
    pub(crate) fn begin_at(&self, floor: i64, revision: i64) {
        self.set_known(floor);
        self.seen.store(revision, Ordering::Release);
    }

    /// The condition that the floor is this one.
    pub(crate) fn condition(key: &str, floor: i64) -> Compare {
        if floor == 0 {
            Compare::absent(crate::messages::one(key))
        } else {
            Compare::value(key, &floor.to_string())
        }
    }

    /// The floor as it was read. A text that is no number, which is nobody's, counts as none.
    pub(crate) fn read(found: Option<&KeyValue>) -> i64 {
        found.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.trim().parse().ok()).unwrap_or(0)
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
        let raised = floor.needed(0, 41).unwrap();
        assert!(raised + 41 > 120, "{raised}");
        assert_eq!(floor.needed(raised, 41), None, "another client has raised it");
        floor.begin_at(raised, 41);
        assert!(floor.note(floor.mark(), 42));
    }
}
