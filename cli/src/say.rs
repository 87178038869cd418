//! Messages for people, on standard error. If that is closed, they are lost.

use std::io::Write as _;

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
            line(&format!("warning: {message}"));
        }
    }

    /// A message for `--verbose`.
    pub(crate) fn tell(self, message: &str) {
        if self == Self::Verbose {
            line(message);
        }
    }
}

/// One line, whatever is in it.
pub(crate) fn line(message: &str) {
    let message = message.replace(['\n', '\r'], " ");
    drop(writeln!(std::io::stderr(), "lockwell: {message}"));
}

/// A time for people: nobody wants nanoseconds.
pub(crate) fn rounded(time: std::time::Duration) -> humantime::FormattedDuration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    // Above a minute, parts of a second say nothing.
    let millis = if millis >= 60_000 { millis / 1000 * 1000 } else { millis };
    humantime::format_duration(std::time::Duration::from_millis(millis))
}
