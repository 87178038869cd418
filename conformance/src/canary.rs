//! Finds owner ids in texts that must not contain them: logs, and the output of `Debug`.
//!
//! Anyone who knows the owner id of a lock can release it. This module remembers each new
//! [`OwnerId`](lockwell_core::OwnerId) of a process that runs the suite, and [`shows_an_owner`] searches a text
//! for them.

use std::collections::{HashSet, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The number of owner ids that are remembered: more than are in use at a time, in a few megabytes.
const MOST: usize = 200_000;

/// The hexadecimal digits of an owner, and its bytes.
const DIGITS: usize = 32;
const BYTES: usize = 16;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// The latest owners.
#[derive(Debug, Default)]
struct Known {
    owners: HashSet<u128>,
    by_age: VecDeque<u128>,
}

impl Known {
    fn note(&mut self, owner: u128, most: usize) {
        if self.owners.insert(owner) {
            self.by_age.push_back(owner);
        }
        while self.by_age.len() > most {
            if let Some(oldest) = self.by_age.pop_front() {
                self.owners.remove(&oldest);
            }
        }
    }
}

/// Remembers an owner that was just made.
pub(crate) fn note(owner: u128) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).note(owner, MOST);
}

fn is_known(owner: u128) -> bool {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).owners.contains(&owner)
}

/// Whether a text contains an owner that this process has made: in hexadecimal digits, with or without
/// hyphens, or byte by byte as `Debug` prints lists of numbers and strings of bytes.
pub fn shows_an_owner(text: &str) -> bool {
    in_digits(text.as_bytes()) || in_lists(text) || in_escapes(text)
}

/// Searches sequences of hexadecimal digits and hyphens. Other digits may stand before and after an owner id.
fn in_digits(text: &[u8]) -> bool {
    let (mut run, mut digits) = (0_u128, 0);
    for byte in text {
        match char::from(*byte).to_digit(16) {
            Some(digit) => {
                run = run << 4 | u128::from(digit);
                digits += 1;
                if digits >= DIGITS && is_known(run) {
                    return true;
                }
            }
            None if *byte == b'-' => {}
            None => digits = 0,
        }
    }
    false
}

/// Searches lists such as `[1, 2, 3]`: the bytes themselves, and the text that they may be.
fn in_lists(text: &str) -> bool {
    text.split('[').skip(1).any(|list| {
        let list = list.split(']').next().unwrap_or_default();
        let bytes: Result<Vec<u8>, _> =
            list.split(',').map(str::trim).filter(|number| !number.is_empty()).map(str::parse).collect();
        bytes.is_ok_and(|bytes| in_bytes(&bytes) || in_digits(&bytes))
    })
}

/// Searches strings such as `"\x01a"`.
fn in_escapes(text: &str) -> bool {
    if !text.contains("\\x") {
        return false;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, length) = match (first, tail) {
            (b'\\', [b'x', high, low, ..]) => {
                (hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low), 4)
            }
            (b'\\', [b'n', ..]) => (Some(b'\n'), 2),
            (b'\\', [b'r', ..]) => (Some(b'\r'), 2),
            (b'\\', [b't', ..]) => (Some(b'\t'), 2),
            (b'\\', [b'0', ..]) => (Some(0), 2),
            (b'\\', [escaped, ..]) => (Some(*escaped), 2),
            _ => (Some(*first), 1),
        };
        bytes.push(byte.unwrap_or(*first));
        rest = &rest[length..];
    }
    in_bytes(&bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn in_bytes(bytes: &[u8]) -> bool {
    let mut windows = bytes.windows(BYTES).filter_map(|bytes| bytes.try_into().ok());
    windows.any(|bytes| is_known(u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use lockwell_core::OwnerId;

    /// A new owner, which is remembered.
    fn noted() -> u128 {
        let owner = OwnerId::random().as_u128();
        note(owner);
        owner
    }

    /// Every form in which it may be written.
    fn forms(owner: Uuid) -> Vec<String> {
        let bytes = owner.as_bytes();
        vec![
            owner.simple().to_string(),
            owner.hyphenated().to_string(),
            format!("{:X}", owner.simple()),
            format!("{:X}", owner.hyphenated()),
            format!("{bytes:?}"),
            format!("{bytes:#?}"),
            format!("{:?}", owner.simple().to_string().as_bytes()),
            format!("b\"{}\"", bytes.escape_ascii()),
        ]
    }

    #[test]
    fn an_owner_is_found_in_every_form_and_anywhere() {
        // Among many, so that their bytes are of every kind.
        for owner in (0..500).map(|_| Uuid::from_u128(noted())) {
            for form in forms(owner) {
                for text in [
                    form.clone(),
                    format!("/locks/_c_{form}-lock-0000000017"),
                    format!("[17, {form}] ab-{form}"),
                ] {
                    assert!(shows_an_owner(&text), "{text}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_owner_is_not_found() {
        assert!(noted() > 0);
        for form in forms(Uuid::from_u128(rand::random())) {
            assert!(!shows_an_owner(&form), "{form}");
        }
        let owner = format!("{:032x}", noted());
        for text in ["", "\\", "\\x", "[", "[1, 2", "\\x0", "Claim { owner: OwnerId(..) }", &owner[1..]] {
            assert!(!shows_an_owner(text), "{text}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut known = Known::default();
        for owner in [1, 2, 2, 3] {
            known.note(owner, 2);
        }
        assert_eq!((known.owners.len(), known.by_age.len()), (2, 2));
        assert!(!known.owners.contains(&1) && known.owners.contains(&3));
    }
}
