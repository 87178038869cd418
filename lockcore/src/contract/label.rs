//! What a label may be, and how it is stored.

use std::sync::Arc;

use crate::system::PerProcess;
use crate::{Error, ErrorKind, Result, TraceParent};

/// The longest label, in bytes, with what is stored beside it.
const MAX_LABEL: usize = 255;

/// Between a label and the traceparent beside it. A label has no control characters.
const BESIDE: char = '\u{1f}';

/// Checks a label as every request does, for programs that make claims themselves.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it has more than 255 bytes, or a control character.
pub fn check_label(label: &str) -> Result<()> {
    if label.len() > MAX_LABEL || label.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("a label has at most {MAX_LABEL} bytes and no control characters"),
        ));
    }
    Ok(())
}

/// The label of a client that has no other: host and process.
pub(crate) fn default_label() -> Arc<str> {
    static LABEL: PerProcess<Arc<str>> = PerProcess::new();
    LABEL.get_or_init(|| format!("{}:{}", host_name(), std::process::id()).into())
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// The label as a claim has it: with the traceparent, unless there is no room for it.
pub(crate) fn with_trace(label: &Arc<str>, traceparent: Option<&TraceParent>) -> Arc<str> {
    match traceparent {
        Some(trace) if label.len() + BESIDE.len_utf8() + TraceParent::LENGTH <= MAX_LABEL => {
            format!("{label}{BESIDE}{trace}").into()
        }
        _ => Arc::clone(label),
    }
}

/// The label of a claim without its traceparent. Another program may have stored anything.
pub(super) fn split(mut stored: String) -> (String, Option<TraceParent>) {
    let beside =
        stored.rsplit_once(BESIDE).and_then(|(label, trace)| Some((label.len(), trace.parse().ok()?)));
    let Some((length, trace)) = beside else { return (stored, None) };
    stored.truncate(length);
    (stored, Some(trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_stored_beside_a_label_if_there_is_room() {
        let trace: TraceParent = TRACE.parse().unwrap();
        for (label, fits) in
            [("", true), ("wéb-1", true), (&*"x".repeat(199), true), (&"x".repeat(200), false)]
        {
            let stored = with_trace(&label.into(), Some(&trace));
            assert!(stored.len() <= MAX_LABEL);
            let (read, beside) = split(String::from(&*stored));
            assert_eq!((read.as_str(), beside), (label, fits.then(|| trace.clone())));
            assert_eq!(split(String::from(&*with_trace(&label.into(), None))), (label.to_owned(), None));
        }
    }

    #[test]
    fn what_other_programs_store_is_a_label() {
        for odd in
            ["a\u{1f}b", "\u{1f}", "a\u{1f}00-0-0-0", &format!("a\u{1f}{TRACE} "), &format!("a{TRACE}")]
        {
            assert_eq!(split(odd.into()), (odd.into(), None));
        }
    }
}
