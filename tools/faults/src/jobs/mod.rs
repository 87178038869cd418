//! Jobs that run once for a key: hosts that run them, what they note, and what is checked.

#[cfg(test)]
mod broken;
mod check;
mod host;
mod notes;

pub(crate) use check::{Stored, check, count, effects, stored};
pub(crate) use host::host;
pub(crate) use notes::Notes;

use crate::error::{Error, Result};

/// How many attempts each key has.
const ATTEMPTS: u32 = 3;

/// A job and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Firing {
    pub(crate) job: u32,
    pub(crate) key: u32,
}

impl Firing {
    /// The key as lockwell has it.
    fn key(self) -> String {
        format!("firing {}", self.key)
    }

    fn of(job: u32, key: &str) -> Result<Self> {
        let number = key.strip_prefix("firing ").and_then(|number| number.parse().ok());
        let key = number.ok_or_else(|| Error::failed(format!("the key {key:?} is stored of a job")))?;
        Ok(Self { job, key })
    }
}
