//! The command that runs under the lock.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitStatus;

use lockwell::{LockConfig, LockName};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group,
};
use tokio::process;

use crate::args::WorkArgs;
use crate::exit::Failure;
use crate::helper::{self, Watcher};
use crate::hold::Hold;
use crate::job::Job;
use crate::terminal::Terminal;
use crate::{nested, trace};

/// Variables in the command's environment.
const NAME: &str = "LOCKWELL_NAME";
const TOKEN: &str = "LOCKWELL_TOKEN";
const HOLD: &str = "LOCKWELL_HOLD";

/// The command as a process.
pub(crate) struct Child {
    process: process::Child,
    pid: Pid,
    group: Group,
    /// Kills the group if we are killed.
    watcher: Option<Watcher>,
    /// How the terminal was before.
    terminal: Option<Terminal>,
}

/// Which process group the command is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Its own: a signal reaches all that it has started.
    Own,
    /// Ours, since only the group in the foreground may read from the terminal. The terminal's own signals
    /// reach it there without our help.
    Ours,
}

impl Child {
    /// Starts the command on this thread, which must live as long as the command: Linux kills the command
    /// when the thread that started it ends.
    pub(crate) fn start(
        words: &[OsString],
        name: &LockName,
        hold: &Hold,
        holding: &WorkArgs,
        job: Option<&Job>,
        address: &str,
    ) -> Result<Self, Failure> {
        let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("no command"))?;
        let bound = !holding.keep_child && cfg!(target_os = "linux");
        let group = if io::stdin().is_terminal() { Group::Ours } else { Group::Own };
        let terminal = Terminal::read();
        let mut command = if bound {
            helper::ends_with_parent(words).into()
        } else {
            let mut command = process::Command::new(program);
            command.args(arguments);
            command
        };
        command.env(NAME, name.as_str()).env(nested::HELD, nested::extended(hold.tokens()));
        command.env(trace::TRACE, trace::own());
        if let Some(guard) = hold.guard(name) {
            command.env(TOKEN, guard.token().to_string()).env(HOLD, guard.hold_id().to_string());
        }
        if let Some(job) = job {
            job.environment(&mut command);
        }
        if holding.pass_url {
            command.env(LockConfig::ENV, address);
        } else {
            command.env_remove(LockConfig::ENV);
        }
        let mut watcher = None;
        if group == Group::Own {
            command.process_group(0);
            if !holding.keep_child {
                watcher = Some(Watcher::start().map_err(|error| Failure::no_helper(&error))?);
            }
        }
        let process = command.spawn().map_err(|error| match error.kind() {
            // The program that was not found is lockwell itself.
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if bound => Failure::no_helper(&error),
            _ => Failure::not_started(&program.to_string_lossy(), &error),
        })?;
        let pid = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("the command has no process id"))?;
        if let Some(Err(error)) = watcher.as_mut().map(|watcher| watcher.watch(pid)) {
            // The command itself still ends with lockwell.
            tracing::warn!(%error, "processes that the command starts will outlive lockwell if it is killed");
        }
        Ok(Self { process, pid, group, watcher, terminal })
    }

    /// The processes that are waited for: the command, and the one that watches over it.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let watcher = self.watcher.as_ref().and_then(Watcher::pid);
        watcher.into_iter().chain([self.pid]).collect()
    }

    /// Waits for the end of the command.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Notes that the command, or its whole group if that was to be ended, has ended: by itself, or
    /// `by_signal`.
    pub(crate) fn over(&mut self, by_signal: bool) {
        if let Some(terminal) = self.terminal.take().filter(|_| by_signal) {
            terminal.restore();
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.dismiss();
        }
    }

    /// Sends a signal to the command's group.
    pub(crate) fn signal(&self, signal: Signal) {
        let sent = match self.group {
            Group::Own => kill_process_group(self.pid, signal),
            // Once it has ended, its id may be that of another process.
            Group::Ours if self.process.id().is_none() => Ok(()),
            Group::Ours => kill_process(self.pid, signal),
        };
        match sent {
            // It has just ended.
            Ok(()) | Err(Errno::SRCH) => (),
            Err(error) => tracing::warn!(?signal, %error, "the command did not get the signal"),
        }
    }

    /// Passes on a signal that lockwell has received, unless the terminal has sent it to the command, too.
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
