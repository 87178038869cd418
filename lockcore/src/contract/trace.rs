//! The `traceparent` of W3C Trace Context.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// What a holder or a waiter does, as [W3C Trace Context](https://www.w3.org/TR/trace-context/) writes it:
/// version, trace id, parent id and flags, as in `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
///
/// It is for people who look for the cause of a wait, and has no effect on the lock.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceParent(Box<str>);

impl TraceParent {
    /// Its length in bytes.
    pub(crate) const LENGTH: usize = 55;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the trace, 32 hexadecimal digits: the same for all that belongs to one operation.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }

    /// The id of the caller's span, 16 hexadecimal digits.
    pub fn parent_id(&self) -> &str {
        self.0.get(36..52).unwrap_or_default()
    }

    /// The flags, two hexadecimal digits.
    pub fn flags(&self) -> &str {
        self.0.get(53..).unwrap_or_default()
    }

    /// Whether the caller may have recorded its part of the trace.
    pub fn is_sampled(&self) -> bool {
        self.0.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])
    }
}

impl FromStr for TraceParent {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is of another form, or has an id of only zeros.
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let is_hex = |part: &&str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_id = |id: &str| id.bytes().any(|byte| byte != b'0');
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let is_valid = lengths == [2, 32, 16, 2]
            && parts.iter().all(is_hex)
            && parts[0] != "ff"
            && is_id(parts[1])
            && is_id(parts[2]);
        if !is_valid {
            let message = format!("{text:?} is no traceparent of W3C Trace Context");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_allows() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace: TraceParent = good.parse().unwrap();
        assert_eq!((trace.as_str(), trace.trace_id()), (good, "4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!((trace.parent_id(), trace.flags()), ("00f067aa0ba902b7", "01"));
        assert_eq!(good.len(), TraceParent::LENGTH);
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(bad.parse::<TraceParent>().unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
