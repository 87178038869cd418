//! The command line.

// These comments are printed as help, where the marks of Markdown would be in the way.
#![allow(clippy::doc_markdown)]

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lockwell::{LockConfig, LockName, Mode};

/// Distributed locks for the shell.
#[derive(Parser)]
#[command(name = "lockwell", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Status(StatusArgs),
}

/// Runs a command while holding a lock.
///
/// Waits for the lock, runs the command, keeps the lock while the command runs, and frees it when the command has
/// ended. If the lock is lost on the way, the command is ended: TERM, and KILL after the grace.
#[derive(Args)]
#[command(after_help = "See --help for the exit status, signals and environment.", after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long to wait for the lock at most, as in 5s or 2m [default: as long as it takes].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: give up at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long the lock outlives lockwell if it is killed or cut off [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
    /// End the command and free the lock after this time, however well it goes [default: never].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) max_hold: Option<Duration>,
    /// After a crash, not after a release, let the lock rest for this time before another gets it.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) lock_delay: Option<Duration>,
    /// Once the lock is lost, how long the command has between TERM and KILL.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "5s")]
    pub(crate) grace: Duration,
    /// A text that shows others who holds the lock [default: host and process].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Share the lock with other readers.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) read: bool,
    /// Hold the lock together with others, N at most. All must give the same N.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,
    /// The lock.
    pub(crate) name: LockName,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    pub(crate) fn mode(&self) -> Mode {
        match self.permits {
            Some(limit) => Mode::Permit { limit },
            None if self.read => Mode::Shared,
            None => Mode::Exclusive,
        }
    }
}

/// Shows who holds a lock and how many wait for it.
///
/// It is history by the time it is read: show it, do not decide by it. The exit status is 0 whether the lock is held
/// or free.
#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON: name, held, holders (token, label, mode, ttl_ms, held_ms), waiters.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock.
    pub(crate) name: LockName,
}

#[derive(Args)]
pub(crate) struct Server {
    /// The lock server, as in sqlite:///var/lib/app/locks.db or postgres://user:password@host/database.
    ///
    /// Other users of the machine can see the command line: give an address with a password by LOCKWELL_URL.
    // The help must not print the password that stands in the environment.
    #[arg(long, env = LockConfig::ENV, hide_env_values = true)]
    pub(crate) url: Option<String>,
}

const RUN_HELP: &str = "\
Exit status:
  The command's own, or 128 + n if signal n ended it. Otherwise:
   64  wrong usage, name or address
   69  the lock server cannot be reached
   70  any other error
   75  the lock was not free in time
   76  the lock was lost while the command ran
   77  the lock server refused us: password or permission
  126  the command cannot be executed
  127  the command does not exist
  128 + n  signal n came while waiting for the lock; the place in the queue is given up

Signals:
  The command runs in a process group of its own. HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and WINCH are passed
  on to that group, but not those that lockwell was started to ignore (nohup). If the lock is lost, the whole group
  is ended. If the command ends, the lock is freed, whatever else of its group still runs.
  If the standard input is a terminal, the command stays in lockwell's group, so that it can read from the terminal.
  Then the terminal sends INT, QUIT and TSTP to the command, lockwell passes on only HUP, TERM, USR1 and USR2, and a
  lost lock ends the command but not the processes that it has started.
  KILL and STOP cannot be passed on. If lockwell itself is killed, the command goes on, and the lock ends with its
  ttl: let the command hand LOCKWELL_TOKEN to what it changes, so that a late write can be refused.

Environment:
  LOCKWELL_URL  the lock server, unless --url is given
  RUST_LOG      what to log to standard error, as in lockwell=debug,info; nothing by default
  The command finds in its own environment, beside all of lockwell's:
  LOCKWELL_NAME   the lock
  LOCKWELL_TOKEN  the fencing token: a number that is higher than that of every earlier holder of the lock";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn modes() {
        let mode = |line| match parse(line).map(|cli| cli.command) {
            Ok(Command::Run(args)) => args.mode(),
            _ => panic!("{line}"),
        };
        assert_eq!(mode("lockwell run a -- true"), Mode::Exclusive);
        assert_eq!(mode("lockwell run --read a -- true"), Mode::Shared);
        let limit = NonZeroU32::new(3).unwrap();
        assert_eq!(mode("lockwell run --permits 3 a -- true"), Mode::Permit { limit });
    }

    #[test]
    fn what_is_refused() {
        for line in [
            "lockwell run a true",
            "lockwell run a --",
            "lockwell run --read --permits 3 a -- true",
            "lockwell run --permits 0 a -- true",
            "lockwell run --wait 5s --no-wait a -- true",
            "lockwell run --wait 5x a -- true",
            "lockwell status",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let name = "x".repeat(LockName::MAX_BYTES + 1);
        let error = parse(&format!("lockwell status {name}")).err().expect("refused").to_string();
        assert!(error.contains("at most 512 bytes"), "{error}");
    }
}
