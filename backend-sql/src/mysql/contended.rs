//! Which locks have been found taken of late.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockcore::{LockName, Moment};

/// How long a lock counts as contended after it was found taken.
const SPAN: Duration = Duration::from_secs(2);
/// The most names that are remembered.
const MOST: usize = 1024;

/// What is known about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    /// It was held. To look at it first costs no more, and one that is held is then refused by a single statement.
    Taken,
    /// A transaction had its row locked: it is not to be waited for.
    Locked,
}

/// What was found out about locks in the last seconds. It decides which statement is tried first and nothing else.
#[derive(Debug, Default)]
pub(super) struct Contended(Mutex<HashMap<LockName, (Moment, Known)>>);

impl Contended {
    pub(super) fn note(&self, name: &LockName, known: Known) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        if notes.len() >= MOST {
            notes.retain(|_, (end, _)| *end > now);
        }
        if notes.len() < MOST || notes.contains_key(name) {
            notes.insert(name.clone(), (now.after(SPAN), known));
        }
    }

    pub(super) fn known(&self, name: &LockName) -> Known {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let note = notes.get(name).filter(|(end, _)| !end.has_passed());
        note.map_or(Known::Nothing, |(_, known)| *known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_a_bounded_number_of_names() {
        let contended = Contended::default();
        for n in 0..2 * MOST {
            contended.note(&LockName::new(n.to_string()).unwrap(), Known::Taken);
        }
        assert_eq!(contended.known(&LockName::new("0").unwrap()), Known::Taken);
        assert_eq!(contended.known(&LockName::new("other").unwrap()), Known::Nothing);
        assert_eq!(contended.0.lock().unwrap().len(), MOST);
    }
}
