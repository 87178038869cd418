//! The words of Python for what the library enumerates: `held_too_long` for `HeldTooLong`.

use std::fmt::Debug;

use lockwell::{ErrorKind, LeaseState, Operation};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;

/// The name of a variant, as Python writes it.
pub(crate) fn word(variant: impl Debug) -> String {
    let mut word = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

/// The state of a lease without the reason of a loss.
pub(crate) fn state(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Held => "held",
        LeaseState::Suspect => "suspect",
        LeaseState::Lost(_) => "lost",
        LeaseState::Released => "released",
        // A state of a later version: nothing is claimed of it.
        _ => "unknown",
    }
}

/// The operations that a test can make fail.
const OPERATIONS: [Operation; 8] = [
    Operation::Acquire,
    Operation::Renew,
    Operation::Downgrade,
    Operation::Release,
    Operation::Inspect,
    Operation::ForceRelease,
    Operation::WriteRecord,
    Operation::ReadRecord,
];

pub(crate) fn operation(text: &str) -> PyResult<Operation> {
    named(&OPERATIONS, text, "operation")
}

pub(crate) fn kind(text: &str) -> PyResult<ErrorKind> {
    named(ErrorKind::ALL, text, "kind of error")
}

fn named<T: Copy + Debug>(all: &[T], text: &str, what: &str) -> PyResult<T> {
    all.iter().copied().find(|one| word(one) == text).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(word).collect();
        PyValueError::new_err(format!("{text:?} is no {what}; there are: {}", names.join(", ")))
    })
}
