//! Processes of `lockwell` itself that make sure that a command does not outlive it.
//!
//! A process can ask Linux for a signal when its parent ends, but only for itself, and the command does not
//! do that. So a helper asks for the signal and then becomes the command (`exec`), which keeps the setting.
//! Processes that the command starts do not inherit it: a watcher kills them, as a group.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group};

use crate::exit::{self, Failure};
use crate::say;

/// The first word of a command line that is for the helper; the next is the process id of its parent, then
/// the command.
const EXEC: &str = "__exec";
/// The first word for the helper if messages are for programs.
const EXEC_JSON: &str = "__exec_json";
/// The only word of a command line that is for the watcher.
const WATCH: &str = "__watch";
/// What the watcher reads when the command has ended.
const DONE: u8 = b'.';

/// Runs as the helper or the watcher, if the command line is for one of them. `None`: it is for neither.
pub(crate) fn perform(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<_> = words.into_iter().skip(1).collect();
    match words.first()?.to_str()? {
        EXEC if words.len() >= 3 => Some(become_command(&words[1], &words[2..])),
        EXEC_JSON if words.len() >= 3 => {
            say::for_programs();
            Some(become_command(&words[1], &words[2..]))
        }
        WATCH if words.len() == 1 => Some(watch()),
        _ => None,
    }
}

/// This program once more, also when its file has been replaced meanwhile.
fn myself() -> Command {
    let own = PathBuf::from("/proc/self/exe");
    let path = if own.exists() { own } else { std::env::current_exe().unwrap_or_else(|_| "lockwell".into()) };
    let mut command = Command::new(path);
    command.arg0("lockwell");
    command
}

/// A process that becomes this command, and is killed when the thread that starts it ends.
pub(crate) fn ends_with_parent(command: &[OsString]) -> Command {
    let mut helper = myself();
    let first = if say::is_for_programs() { EXEC_JSON } else { EXEC };
    helper.arg(first).arg(getpid().as_raw_nonzero().to_string()).args(command);
    helper
}

fn become_command(parent: &OsStr, command: &[OsString]) -> ExitCode {
    let parent = parent.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        let failure =
            Failure::new(exit::SOFTWARE, format!("the command cannot be bound to lockwell: {error}"));
        say::failure(&failure);
        return ExitCode::from(failure.status);
    }
    // If the parent ended before the request, another process is our parent by now, and the lock is not held.
    if getppid() != parent {
        return ExitCode::from(exit::LOST);
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    let failure = Failure::not_started(&command[0].to_string_lossy(), &error);
    say::failure(&failure);
    ExitCode::from(failure.status)
}

/// The end of a pipe. At the other end a process waits for the end of lockwell, and then kills a process
/// group.
pub(crate) struct Watcher {
    pipe: File,
    pid: Option<Pid>,
}

impl Watcher {
    /// Starts before the command does, so that a system which is out of processes runs nothing unwatched.
    pub(crate) fn start() -> io::Result<Self> {
        let mut command = myself();
        // It uses no folder and no terminal, gets no signals of the terminal, and has no secrets in its
        // environment.
        command.arg(WATCH).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends by itself, and the runtime reaps it.
        let mut process = tokio::process::Command::from(command).spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { pipe: pipe.into_owned_fd()?.into(), pid })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Names the group.
    pub(crate) fn watch(&mut self, group: Pid) -> io::Result<()> {
        self.pipe.write_all(format!("{}\n", group.as_raw_nonzero()).as_bytes())
    }

    /// Ends the watcher: the command has ended. Processes that it left behind go on.
    pub(crate) fn dismiss(mut self) {
        if let Err(error) = self.pipe.write_all(&[DONE]) {
            // It has ended, and kills nothing.
            tracing::debug!(%error, "the watcher has ended before");
        }
    }
}

/// Reads from the pipe until it ends, which is the death of the writer, and kills the group that was named;
/// unless the writer said before that all is done.
///
/// The writer's files are closed before its children are given to another parent and reaped, so the group
/// that is killed is not another one with the same number.
fn watch() -> ExitCode {
    // Lists of processes show this name. It was started as /proc/self/exe, and would be called "exe".
    fs::write("/proc/self/comm", "lockwell-watch").unwrap_or_default();
    let mut input = Vec::new();
    if io::stdin().lock().read_to_end(&mut input).is_err() || input.last() == Some(&DONE) {
        return ExitCode::SUCCESS;
    }
    let text = String::from_utf8_lossy(&input);
    let group = text.trim_end().parse().ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // An error says that nobody of it is left.
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_command_lines_are_left_alone() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for line in [
            "lockwell",
            "lockwell run a -- __exec",
            "lockwell __exec",
            "lockwell __exec 1",
            "lockwell __watch x",
        ] {
            assert!(perform(words(line)).is_none(), "{line}");
        }
    }
}
