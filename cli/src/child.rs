//! The command that runs under the lock.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitStatus;

use lockwell::LockGuard;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};
use tokio::process;

/// What the command finds in its environment.
const NAME: &str = "LOCKWELL_NAME";
const TOKEN: &str = "LOCKWELL_TOKEN";

/// The command as a process.
pub(crate) struct Child {
    process: process::Child,
    pid: Pid,
    group: Group,
}

/// Which process group the command is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Its own: a signal reaches all that it has started.
    Own,
    /// Ours, since only the group in the foreground may read from the terminal. The terminal's own signals reach it
    /// there without our help.
    Ours,
}

impl Child {
    pub(crate) fn start(command: &[OsString], guard: &LockGuard) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let group = if io::stdin().is_terminal() { Group::Ours } else { Group::Own };
        let mut command = process::Command::new(program);
        command.args(arguments).env(NAME, guard.name().as_str()).env(TOKEN, guard.token().to_string());
        if group == Group::Own {
            command.process_group(0);
        }
        let process = command.spawn()?;
        let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("the command has no process id"))?;
        Ok(Self { process, pid, group })
    }

    /// Waits for the end of the command.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Sends a signal to the command's group.
    pub(crate) fn signal(&self, signal: Signal) {
        let sent = match self.group {
            Group::Own => kill_process_group(self.pid, signal),
            // Once it has ended, its id may be that of a stranger.
            Group::Ours if self.process.id().is_none() => Ok(()),
            Group::Ours => kill_process(self.pid, signal),
        };
        match sent {
            // It has just ended.
            Ok(()) | Err(Errno::SRCH) => (),
            Err(error) => tracing::warn!(?signal, %error, "the command did not get the signal"),
        }
    }

    /// Sends a signal on that lockwell has received, unless the terminal has sent it to the command too.
    pub(crate) fn pass_on(&self, signal: Signal) {
        let by_terminal = [Signal::INT, Signal::QUIT, Signal::TSTP, Signal::CONT, Signal::WINCH];
        if self.group == Group::Own || !by_terminal.contains(&signal) {
            self.signal(signal);
        }
    }

    /// Whether anything of the command's group is left.
    pub(crate) fn is_left(&self) -> bool {
        let test = match self.group {
            Group::Own => test_kill_process_group(self.pid),
            Group::Ours if self.process.id().is_none() => return false,
            Group::Ours => test_kill_process(self.pid),
        };
        test != Err(Errno::SRCH)
    }
}
