//! The locks that were found held in the last seconds.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use lockwell_core::backend::lock;
use lockwell_core::{LockName, Moment};

/// How long a lock counts as contended after it was found held.
const SPAN: Duration = Duration::from_secs(2);
/// The most names that are remembered.
const MOST: usize = 1024;

/// What is known about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contention {
    None,
    /// The lock was held. Reading it first costs no more, and one statement is then enough to refuse a claim.
    Held,
    /// A transaction had locked its row. Requests must not wait for that.
    RowLocked,
}

/// The locks that were found held in the last seconds. This only decides which statement is tried first.
#[derive(Debug, Default)]
pub(super) struct Contended(Mutex<HashMap<LockName, (Moment, Contention)>>);

impl Contended {
    pub(super) fn note(&self, name: &LockName, contention: Contention) {
        let mut notes = lock(&self.0);
        let now = Moment::now();
        if notes.len() >= MOST {
            notes.retain(|_, (end, _)| *end > now);
        }
        if notes.len() < MOST || notes.contains_key(name) {
            notes.insert(name.clone(), (now.after(SPAN), contention));
        }
    }

    pub(super) fn contention(&self, name: &LockName) -> Contention {
        let notes = lock(&self.0);
        let note = notes.get(name).filter(|(end, _)| !end.has_passed());
        note.map_or(Contention::None, |(_, contention)| *contention)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_a_bounded_number_of_names() {
        let contended = Contended::default();
        for n in 0..2 * MOST {
            contended.note(&LockName::new(n.to_string()).unwrap(), Contention::Held);
        }
        assert_eq!(contended.contention(&LockName::new("0").unwrap()), Contention::Held);
        assert_eq!(contended.contention(&LockName::new("other").unwrap()), Contention::None);
        assert_eq!(contended.0.lock().unwrap().len(), MOST);
    }
}
