//! What is remembered about a lock from the last answers about it.
//!
//! It decides which statement is tried first, and nothing else: a hint that is wrong costs a statement. Each
//! database has one pure function, `plan`, that makes the statements of a request from the hints.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockwell_core::LockName;
use lockwell_core::backend::Hot;

/// How long it is remembered that a lock was held, or its row locked.
const SPAN: Duration = Duration::from_secs(2);

/// What can be remembered about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Somebody waits for it.
    Waited,
    /// Its row says so.
    Marked,
    /// Its last release has granted it to a waiter.
    HandedOn,
    /// It was held.
    Held,
    /// A transaction had locked its row.
    RowLocked,
}

const ALL: [Hint; 5] = [Hint::Waited, Hint::Marked, Hint::HandedOn, Hint::Held, Hint::RowLocked];

/// All that can be known about one lock.
#[cfg(test)]
pub(crate) fn each_known() -> impl Iterator<Item = impl Fn(Hint) -> bool + Copy> {
    (0..1 << ALL.len()).map(|known: u8| move |hint| known & (1 << hint as u8) != 0)
}

/// What is remembered about the locks, by hint, and about the tables.
#[derive(Debug)]
pub struct Hints {
    hot: [Hot; 5],
    /// Whether there is a table for records.
    has_records: AtomicBool,
}

impl Hints {
    pub(crate) fn new() -> Self {
        let hot = ALL.map(|hint| match hint {
            Hint::Held | Hint::RowLocked => Hot::lasting(SPAN),
            _ => Hot::new(),
        });
        Self { hot, has_records: AtomicBool::new(false) }
    }

    pub(crate) fn has_records(&self) -> bool {
        self.has_records.load(Ordering::Relaxed)
    }

    pub(crate) fn note_records(&self, are_there: bool) {
        self.has_records.store(are_there, Ordering::Relaxed);
    }

    /// Of `Held` and `RowLocked` the one that was noted last is known.
    pub(crate) fn note(&self, hint: Hint, name: &LockName) {
        self.hot[hint as usize].note(name);
        match hint {
            Hint::Held => self.forget(Hint::RowLocked, name),
            Hint::RowLocked => self.forget(Hint::Held, name),
            _ => (),
        }
    }

    pub(crate) fn forget(&self, hint: Hint, name: &LockName) {
        self.hot[hint as usize].forget(name);
    }

    pub(crate) fn has(&self, hint: Hint, name: &LockName) -> bool {
        self.hot[hint as usize].is_hot(name)
    }

    /// What is known about a lock. Each hint is looked up when it is asked for.
    pub(crate) fn of(&self, name: &LockName) -> impl Fn(Hint) -> bool + Copy {
        move |hint| self.has(hint, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_last_is_known_however_many_were_noted_before() {
        let (hints, last) = (Hints::new(), LockName::new("last").unwrap());
        for n in 0..4096 {
            hints.note(Hint::Held, &LockName::new(n.to_string()).unwrap());
        }
        for [hint, other] in [[Hint::RowLocked, Hint::Held], [Hint::Held, Hint::RowLocked]].repeat(2) {
            hints.note(hint, &last);
            assert!(hints.has(hint, &last) && !hints.has(other, &last));
        }
        assert!(!ALL.into_iter().any(Hints::new().of(&last)));
    }

    #[test]
    fn each_hint_is_known_by_itself() {
        let name = LockName::new("a").unwrap();
        for hint in ALL {
            let hints = Hints::new();
            hints.note(hint, &name);
            assert_eq!(ALL.map(hints.of(&name)), ALL.map(|other| other == hint));
            hints.forget(hint, &name);
            assert!(!ALL.into_iter().any(hints.of(&name)));
        }
        assert_eq!(each_known().count(), 32);
    }
}
