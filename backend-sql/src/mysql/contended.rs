//! Which locks have been found taken of late.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockcore::{LockName, Moment};

/// How long a lock counts as contended after it was found taken.
const SPAN: Duration = Duration::from_secs(2);
/// The most names that are remembered.
const MOST: usize = 1024;

/// The quickest way to take a free lock waits for its row if a transaction has locked it, a second at least. So it is
/// not tried on locks that were found taken a moment ago.
#[derive(Debug, Default)]
pub(super) struct Contended(Mutex<HashMap<LockName, Moment>>);

impl Contended {
    pub(super) fn note(&self, name: &LockName) {
        let mut until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Moment::now();
        if until.len() >= MOST {
            until.retain(|_, end| *end > now);
        }
        if until.len() < MOST {
            until.insert(name.clone(), now.after(SPAN));
        }
    }

    pub(super) fn holds(&self, name: &LockName) -> bool {
        let until = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.get(name).is_some_and(|end| !end.has_passed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_a_bounded_number_of_names() {
        let contended = Contended::default();
        for n in 0..2 * MOST {
            contended.note(&LockName::new(n.to_string()).unwrap());
        }
        assert!(contended.holds(&LockName::new("0").unwrap()));
        assert_eq!(contended.0.lock().unwrap().len(), MOST);
    }
}
