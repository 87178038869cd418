//! Messages on standard error, for people or, with `--json`, for programs. If it is closed, they are lost.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::Failure;
use crate::json::MessageReport;

/// Whether messages are for programs: an object in a line each. It is set once, before the first message.
static FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// From now on messages are for programs.
pub(crate) fn for_programs() {
    FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// How many messages are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Voice {
    Quiet,
    Usual,
    Verbose,
}

impl Voice {
    /// A warning: something is wrong or may become so, while the work goes on.
    pub(crate) fn warn(self, message: &str) {
        if self > Self::Quiet {
            warning(message);
        }
    }

    /// A message for `--verbose`.
    pub(crate) fn tell(self, message: &str) {
        if self == Self::Verbose {
            print("info", message, None);
        }
    }
}

/// A warning that `--quiet` does not silence.
pub(crate) fn warning(message: &str) {
    print("warning", message, None);
}

/// Why lockwell ends with this exit status.
pub(crate) fn error(message: &str, exit_status: u8) {
    print("error", message, Some(exit_status));
}

/// The message of a run that failed, if it has one.
pub(crate) fn failure(failure: &Failure) {
    if !failure.message.is_empty() {
        error(&failure.text(), failure.status);
    }
}

/// One line, whatever is in the message.
fn print(severity: &'static str, message: &str, exit_status: Option<u8>) {
    drop(writeln!(std::io::stderr(), "{}", line(severity, message, exit_status)));
}

/// A message as it is printed, without the end of the line.
pub(crate) fn line(severity: &'static str, message: &str, exit_status: Option<u8>) -> String {
    written(severity, message, exit_status, FOR_PROGRAMS.load(Ordering::Relaxed))
}

fn written(severity: &'static str, message: &str, exit_status: Option<u8>, for_programs: bool) -> String {
    let report = MessageReport::new(severity, message, exit_status);
    match crate::json::line(&report) {
        Ok(text) if for_programs => text.trim_end().to_owned(),
        _ => {
            let prefix = if severity == "warning" { "warning: " } else { "" };
            format!("lockwell: {prefix}{}", message.replace(['\n', '\r'], " "))
        }
    }
}

/// A time for people, without nanoseconds.
pub(crate) fn rounded(time: Duration) -> humantime::FormattedDuration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // Above a minute, parts of a second say nothing.
    let millis = if millis >= 60_000 { millis / 1000 * 1000 } else { millis };
    humantime::format_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(written("error", "a\nb", Some(75), false), "lockwell: a b");
        assert_eq!(written("warning", "a", None, false), "lockwell: warning: a");
        let text = written("error", "a\n\"b\"", Some(75), true);
        assert_eq!(text, r#"{"schema_version":1,"severity":"error","message":"a\n\"b\"","exit_status":75}"#);
        assert_eq!(
            written("info", "a", None, true),
            r#"{"schema_version":1,"severity":"info","message":"a"}"#
        );
    }
}
