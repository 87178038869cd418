//! The locks that were found held in the last seconds.

use std::time::Duration;

use lockwell_core::LockName;
use lockwell_core::backend::Hot;

/// How long a lock counts as contended after it was found held.
const SPAN: Duration = Duration::from_secs(2);

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
#[derive(Debug)]
pub(super) struct Contended {
    held: Hot,
    row_locked: Hot,
}

impl Contended {
    pub(super) fn new() -> Self {
        Self { held: Hot::lasting(SPAN), row_locked: Hot::lasting(SPAN) }
    }

    pub(super) fn note(&self, name: &LockName, contention: Contention) {
        let (found, other) = match contention {
            Contention::None => return,
            Contention::Held => (&self.held, &self.row_locked),
            Contention::RowLocked => (&self.row_locked, &self.held),
        };
        found.note(name);
        other.forget(name);
    }

    pub(super) fn contention(&self, name: &LockName) -> Contention {
        if self.row_locked.is_hot(name) {
            Contention::RowLocked
        } else if self.held.is_hot(name) {
            Contention::Held
        } else {
            Contention::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_last_is_known_however_many_were_noted_before() {
        let (contended, last) = (Contended::new(), LockName::new("last").unwrap());
        for n in 0..4096 {
            contended.note(&LockName::new(n.to_string()).unwrap(), Contention::Held);
        }
        for contention in [Contention::RowLocked, Contention::Held, Contention::RowLocked] {
            contended.note(&last, contention);
            assert_eq!(contended.contention(&last), contention);
        }
        let untouched = Contended::new().contention(&last);
        assert_eq!(untouched, Contention::None);
    }
}
