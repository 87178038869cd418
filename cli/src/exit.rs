//! The exit statuses. The numbers are those of `sysexits.h` where it has one.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

use lockwell::backend::ServerUrl;
use lockwell::{Error, ErrorKind};

/// Wrong usage, name or address.
pub(crate) const USAGE: u8 = 64;
/// The lock server cannot be reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// Any other error.
pub(crate) const SOFTWARE: u8 = 70;
/// The lock was not free in time.
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 76;
/// The lock server refused the login or a permission.
pub(crate) const REFUSED: u8 = 77;
/// A job has had all of its attempts.
pub(crate) const GIVEN_UP: u8 = 78;
/// Holders of locks wait for each other.
pub(crate) const DEADLOCK: u8 = 79;
/// The command cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
const NOT_FOUND: u8 = 127;

/// The end of an unsuccessful run: the message, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    /// Empty: no message.
    pub(crate) message: String,
    /// What can be done about it, if the message does not say it.
    remedy: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), remedy: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// An exit status without a message.
    pub(crate) fn silent(status: u8) -> Self {
        Self::new(status, "")
    }

    /// The message with its remedy.
    pub(crate) fn text(&self) -> String {
        match self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.message),
            None => self.message.clone(),
        }
    }

    /// The command did not start. The statuses are those of a shell.
    pub(crate) fn not_started(command: &str, error: &io::Error) -> Self {
        let is_there = Path::new(command).is_file();
        let (status, text) = match error.kind() {
            io::ErrorKind::NotFound if is_there => {
                (NOT_FOUND, "the program that its first line names, or its loader, does not exist".to_owned())
            }
            io::ErrorKind::NotFound if command.contains([' ', '|', '&', ';', '<', '>', '$', '*', '`']) => (
                NOT_FOUND,
                "there is no such command; an expression of the shell is written: sh -c 'EXPRESSION'"
                    .to_owned(),
            ),
            io::ErrorKind::NotFound => {
                (NOT_FOUND, "there is no such command; is it installed, and in PATH?".to_owned())
            }
            io::ErrorKind::PermissionDenied => {
                (NOT_EXECUTABLE, "it is not a program that this user may execute; see its mode".to_owned())
            }
            _ => (NOT_EXECUTABLE, format!("it cannot be executed: {error}; does a script begin with #!?")),
        };
        Self::new(status, format!("{command}: {text}"))
    }

    /// The processes that keep the command from outliving us did not start, for example after a chroot.
    pub(crate) fn no_helper(error: &io::Error) -> Self {
        let message = format!(
            "lockwell cannot start itself once more, to end the command with it: {error}; it needs /proc and /dev/null, \
             or --keep-child"
        );
        Self::new(SOFTWARE, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        // Some clash with what is no lock of lockwell, which does not leave.
        let status =
            if kind == ErrorKind::KindClash && !error.is_retryable() { USAGE } else { status_of(kind) };
        Self { status, message: format!("{error:#}"), remedy: remedy(kind) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(SOFTWARE, error.to_string())
    }
}

/// What can be done about an error whose message does not say it.
fn remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Refused => Some("check user, password and rights (lockwell doctor checks them)"),
        ErrorKind::UnknownOutcome => Some("nothing was run; what it may have locked ends with its ttl"),
        ErrorKind::Overloaded | ErrorKind::Conflict | ErrorKind::NotHeld => Some("try again"),
        ErrorKind::Internal => Some(
            "see the log of the server; if it says nothing, please report this with the log of RUST_LOG=debug",
        ),
        _ => None,
    }
}

/// The exit status for an error of the library.
pub(crate) fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        // Those of another kind leave, too.
        ErrorKind::TimedOut | ErrorKind::Held | ErrorKind::KindClash => NOT_OBTAINED,
        ErrorKind::Lost => LOST,
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::WouldDeadlock => USAGE,
        // With an unknown outcome there was no answer. The command is not run, and the claim is released.
        ErrorKind::Unreachable | ErrorKind::UnknownOutcome | ErrorKind::GracePeriod => UNREACHABLE,
        ErrorKind::Refused => REFUSED,
        _ => SOFTWARE,
    }
}

/// The exit status that passes on the command's own: 128 + n if signal n ended it, as in a shell.
pub(crate) fn status_of_child(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(SOFTWARE)
}

/// Prints clap's message about the command line `words`. Help and version are no errors.
pub(crate) fn after_usage(error: &clap::Error, words: &[OsString]) -> ExitCode {
    // If the output is closed, the message is lost.
    if error.use_stderr() {
        let runs = words.get(1).is_some_and(|verb| verb == "run" || verb == "lead");
        let text = if runs { for_runs(&error.to_string()) } else { error.to_string() };
        let text = without_passwords(text, words);
        drop(io::stderr().write_all(text.as_bytes()));
        return ExitCode::from(USAGE);
    }
    drop(error.print());
    ExitCode::SUCCESS
}

/// The text of clap about `run` or `lead`, with what clap does not know: `--` is for the command.
fn for_runs(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if line.starts_with("  tip: to pass '") {
            "  tip: the name of a lock cannot begin with - here; lockwell acquire takes such a name after --"
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The text, in which clap may have quoted words, with all addresses among the words as they may be shown.
fn without_passwords(mut text: String, words: &[OsString]) -> String {
    for word in words {
        let Some(word) = word.to_str().filter(|word| word.contains("://")) else { continue };
        // As in `--url=postgres://...`.
        let address = word
            .split_once('=')
            .map_or(word, |(option, rest)| if option.starts_with('-') { rest } else { word });
        let shown = address.parse::<ServerUrl>().map_or_else(|_| "***".to_owned(), |url| url.to_string());
        text = text.replace(address, &shown);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn every_kind_has_its_status() {
        let table = [
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Held, 75),
            (ErrorKind::Lost, 76),
            (ErrorKind::NotHeld, 70),
            (ErrorKind::KindClash, 75),
            (ErrorKind::WouldDeadlock, 64),
            (ErrorKind::InvalidInput, 64),
            (ErrorKind::Unsupported, 64),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::Refused, 77),
            (ErrorKind::Misconfigured, 70),
            (ErrorKind::UnknownOutcome, 69),
            (ErrorKind::Cancelled, 70),
            (ErrorKind::Overloaded, 70),
            (ErrorKind::Conflict, 70),
            (ErrorKind::GracePeriod, 69),
            (ErrorKind::Closed, 70),
            (ErrorKind::Internal, 70),
        ];
        for (kind, status) in table {
            assert_eq!(status_of(kind), status, "{kind:?}");
        }
        for kind in ErrorKind::ALL {
            assert_eq!(table.iter().filter(|(one, _)| one == kind).count(), 1, "{kind:?}");
        }
    }

    #[test]
    fn the_guide_has_every_kind() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
        let page = std::fs::read_to_string(page).unwrap();
        for &kind in ErrorKind::ALL {
            let begin = format!("| `{kind:?}` | ");
            let row = page.lines().find(|line| line.starts_with(&begin));
            let cells: Vec<_> = row.expect(&begin).split(" | ").collect();
            let retryable = if Error::new(kind, "").is_retryable() { "yes" } else { "no" };
            assert_eq!(cells[2], retryable, "{kind:?}");
            assert_eq!(cells[4], format!("{} |", status_of(kind)), "{kind:?}");
        }
    }

    #[test]
    fn every_kind_has_a_remedy_or_a_reason_for_none() {
        let without = [
            (ErrorKind::TimedOut, "the message names the holder, and --wait is how long to wait"),
            (ErrorKind::Held, "the message names the holder"),
            (ErrorKind::Lost, "the message says why: the server, --ttl or --max-hold"),
            (ErrorKind::KindClash, "the message names both ways of use"),
            (ErrorKind::WouldDeadlock, "the message says which lock is held above"),
            (ErrorKind::InvalidInput, "the message says what is allowed"),
            (
                ErrorKind::Unsupported,
                "the message says what is missing, and where: a backend, or a feature of the build",
            ),
            (ErrorKind::Unreachable, "the message says of each host what to check"),
            (ErrorKind::Misconfigured, "the message says what the server lacks"),
            (ErrorKind::GracePeriod, "the message says for how long, and the command waits for its end"),
            (ErrorKind::Cancelled, "the command cancels no claim that it still waits for"),
            (ErrorKind::Closed, "the command closes its client last"),
        ];
        for &kind in ErrorKind::ALL {
            let listed = without.iter().filter(|(one, _)| *one == kind).count();
            assert_eq!(listed + usize::from(remedy(kind).is_some()), 1, "{kind:?}");
        }
    }

    #[test]
    fn the_remedy_comes_after_what_is_added_to_the_message() {
        let mut failure = Failure::from(Error::new(ErrorKind::Refused, "no such user"));
        failure.message += "; and more";
        assert_eq!(
            failure.text(),
            "refused: no such user; and more; check user, password and rights (lockwell doctor checks them)"
        );
        assert_eq!(Failure::usage("a").text(), "a");
    }

    #[test]
    fn a_clash_that_does_not_pass_is_a_mistake() {
        let clash = || Error::new(ErrorKind::KindClash, "");
        assert_eq!(Failure::from(clash()).status, NOT_OBTAINED);
        assert_eq!(Failure::from(clash().for_good()).status, USAGE);
    }

    #[test]
    fn the_childs_status_is_passed_on() {
        assert_eq!(status_of_child(ExitStatus::from_raw(0)), 0);
        assert_eq!(status_of_child(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(status_of_child(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn complaints_do_not_show_passwords() {
        let words =
            ["run", "mysql://ann:hunter2@db/app", "--ulr=mysql://ann:hunter2@db", "my sql://:hunter2@"];
        let text = without_passwords(words.join("' '"), &words.map(OsString::from));
        assert_eq!(text, "run' 'mysql://ann:***@db/app' '--ulr=mysql://ann:***@db' '***");
    }

    #[test]
    fn a_command_that_does_not_start() {
        let status = |kind| Failure::not_started("x", &io::Error::from(kind)).status;
        assert_eq!(status(io::ErrorKind::NotFound), 127);
        assert_eq!(status(io::ErrorKind::PermissionDenied), 126);
    }
}
