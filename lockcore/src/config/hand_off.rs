//! How often a lock may be passed from task to task within a process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// How often, and for how long, a lock may be passed from task to task within the process before it is
/// released, as in `1000/20ms`: see [`Locks::hand_off`](crate::Locks::hand_off).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HandOff {
    max: u32,
    span: Duration,
}

impl HandOff {
    /// The highest number of hand-offs. Each of them reserves a token. The tokens of a name should stay
    /// below the server's time in microseconds, so that they still rise after the counter was lost.
    pub const MOST: u32 = 10_000;

    /// From task to task up to `max` times, at most [`MOST`](Self::MOST), and for up to `span`.
    pub fn new(max: u32, span: Duration) -> Self {
        Self { max: max.min(Self::MOST), span }
    }

    /// How many times.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// For how long.
    pub fn span(&self) -> Duration {
        self.span
    }
}

impl fmt::Display for HandOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.max, humantime::format_duration(self.span))
    }
}

impl FromStr for HandOff {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(max, span)| {
            Some(Self { max: max.parse().ok()?, span: humantime::parse_duration(span).ok()? })
        });
        parts.filter(|hand_off| hand_off.max <= Self::MOST).ok_or_else(|| {
            let message = format!(
                "hand_off is the number of hand-offs, at most {}, and their time, as in 1000/20ms, not {text:?}",
                Self::MOST
            );
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

impl TryFrom<String> for HandOff {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<HandOff> for String {
    fn from(hand_off: HandOff) -> Self {
        hand_off.to_string()
    }
}
