//! The processes of `lockwell` itself that keep a command from outliving it.
//!
//! A process can ask Linux for a signal at the death of its parent, but only for itself, and a program that is started does
//! not know of us. So a helper asks for it and then becomes the command; the wish survives that. It says nothing of the
//! processes that the command starts: they are killed by a watcher, as a group.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process_group};

use crate::exit::{self, Failure};

/// The first word of a command line that is for the helper; the next is the process id of its parent, then the command.
const EXEC: &str = "__exec";
/// The only word of a command line that is for the watcher.
const WATCH: &str = "__watch";
/// What the watcher reads when the command has ended.
const DONE: u8 = b'.';

/// Does what a command line for the helper or the watcher says. `None`: it is for neither.
pub(crate) fn perform(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let words: Vec<_> = words.into_iter().skip(1).collect();
    match words.first()?.to_str()? {
        EXEC if words.len() >= 3 => Some(become_command(&words[1], &words[2..])),
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
pub(crate) fn bound_to_us(command: &[OsString]) -> Command {
    let mut helper = myself();
    helper.arg(EXEC).arg(getpid().as_raw_nonzero().to_string()).args(command);
    helper
}

fn become_command(parent: &OsStr, command: &[OsString]) -> ExitCode {
    let parent = parent.to_str().and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        let failure =
            Failure::new(exit::SOFTWARE, format!("the command cannot be bound to lockwell: {error}"));
        failure.tell();
        return ExitCode::from(failure.status);
    }
    // If the parent died before the request, another process is our parent by now, and nobody holds the lock for us.
    if getppid() != parent {
        return ExitCode::from(exit::LOST);
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    let failure = Failure::not_started(&command[0].to_string_lossy(), &error);
    failure.tell();
    ExitCode::from(failure.status)
}

/// The end of a pipe at whose other end a process waits for our death, to kill a process group then.
pub(crate) struct Watcher(File);

impl Watcher {
    /// Starts before the command does, so that a system which is out of processes runs nothing unwatched.
    pub(crate) fn start() -> io::Result<Self> {
        let mut command = myself();
        // It keeps no folder and no terminal in use, gets no signals of ours, and knows no secrets.
        command.arg(WATCH).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It ends by itself, and the runtime takes note of that.
        let mut process = tokio::process::Command::from(command).spawn()?;
        let pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self(pipe.into_owned_fd()?.into()))
    }

    /// Names the group.
    pub(crate) fn watch(&mut self, group: Pid) -> io::Result<()> {
        self.0.write_all(format!("{}\n", group.as_raw_nonzero()).as_bytes())
    }

    /// The command has ended. What it left behind is its own affair.
    pub(crate) fn dismiss(mut self) {
        if let Err(error) = self.0.write_all(&[DONE]) {
            // It is gone, and kills nobody.
            tracing::debug!(%error, "the watcher has ended before");
        }
    }
}

/// Reads from the pipe until it ends, which is the death of the writer, and kills the group that was named; unless the
/// writer said before that all is done.
///
/// The writer's files are closed before its children are given to another parent and reaped, so the group that is killed is
/// not another one with the same number.
fn watch() -> ExitCode {
    let mut heard = Vec::new();
    if io::stdin().lock().read_to_end(&mut heard).is_err() || heard.last() == Some(&DONE) {
        return ExitCode::SUCCESS;
    }
    let text = String::from_utf8_lossy(&heard);
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
