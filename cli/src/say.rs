//! Messages on standard error, for people or, with `--json`, for programs. If it is closed, they are lost.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::exit::Failure;
use crate::json::MessageReport;
use crate::outlet::Outlet;

/// Whether messages are for programs: an object in a line each. It is set once, before the first message.
static FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// From now on messages are for programs.
pub(crate) fn for_programs() {
    FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// Whether messages are for programs.
pub(crate) fn is_for_programs() -> bool {
    FOR_PROGRAMS.load(Ordering::Relaxed)
}

/// How long the end of lockwell waits for a reader of messages.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// Writes messages and the log, where a reader that does not read must block nobody.
static ASIDE: OnceLock<Outlet> = OnceLock::new();

/// From now on a reader that does not read blocks neither those who say something nor those who log. What it
/// does not read in time is lost.
pub(crate) fn never_block() -> io::Result<()> {
    let outlet = Outlet::start(File::from(io::stderr().as_fd().try_clone_to_owned()?))?;
    // It is called once.
    drop(ASIDE.set(outlet));
    Ok(())
}

/// Waits for a moment until all is written.
pub(crate) fn finish() {
    if let Some(outlet) = ASIDE.get() {
        outlet.drain(LAST_MESSAGE);
    }
}

/// Standard error, for messages and the log.
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match ASIDE.get() {
            Some(outlet) => {
                // If it is full, this is lost.
                outlet.send(text);
                Ok(text.len())
            }
            None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    let line = line(severity, message, exit_status) + "\n";
    drop(Stderr.write_all(line.as_bytes()));
}

/// A message as it is printed, without the end of the line.
pub(crate) fn line(severity: &'static str, message: &str, exit_status: Option<u8>) -> String {
    written(severity, message, exit_status, is_for_programs())
}

fn written(severity: &'static str, message: &str, exit_status: Option<u8>, for_programs: bool) -> String {
    let report = MessageReport::new(severity, message, exit_status);
    match crate::json::line(&report) {
        Ok(text) if for_programs => text.trim_end().to_owned(),
        _ => {
            let prefix = if severity == "warning" { "warning: " } else { "" };
            format!("lockwell: {prefix}{}", printable(&message.replace(['\n', '\r'], " ")))
        }
    }
}

/// A text that may be another's, for people: it must not move the cursor, or begin a line of its own.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
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
        assert_eq!(written("error", "held by \x1b[2J", Some(75), false), "lockwell: held by ?[2J");
        assert_eq!(written("warning", "a", None, false), "lockwell: warning: a");
        let text = written("error", "a\n\"b\"", Some(75), true);
        assert_eq!(text, r#"{"schema_version":1,"severity":"error","message":"a\n\"b\"","exit_status":75}"#);
        assert_eq!(
            written("info", "a", None, true),
            r#"{"schema_version":1,"severity":"info","message":"a"}"#
        );
    }
}
