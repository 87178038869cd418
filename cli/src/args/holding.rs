//! The verbs that take a lock or give it up.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use lockwell::{LockName, Mode};

use super::texts::{LEAD_HELP, RUN_HELP};
use super::{Server, name, time};
use crate::exit;
use crate::say::Voice;

/// Run a command while holding a lock.
///
/// Waits for the lock, runs the command, keeps the lock while the command runs, and frees it when the command has
/// ended. If the lock is lost on the way, the command is ended: TERM, and KILL after the grace.
#[derive(Args)]
#[command(after_help = "See --help for the exit status, signals and environment.", after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long to wait for the lock at most, as in 5s or 2m; a plain number means seconds [default: as long as it
    /// takes].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: give up at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Keep the lock for this time at least, also if the command ends earlier or lockwell is killed: starts on several
    /// machines whose clocks differ by less run once. Not where the lock lives on a session (ZooKeeper).
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) at_least: Option<Duration>,
    /// Share the lock with other readers.
    #[arg(long, conflicts_with_all = ["permits", "also"])]
    pub(crate) read: bool,
    /// Hold the lock together with others, N at most. All must give the same N.
    #[arg(long, value_name = "N", conflicts_with = "also")]
    pub(crate) permits: Option<NonZeroU32>,
    /// Take this lock as well, all or none; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = name::parse)]
    pub(crate) also: Vec<LockName>,
    /// The exit status if the lock was not free in time.
    #[arg(long, value_name = "N", default_value_t = exit::NOT_OBTAINED)]
    pub(crate) exit_code_held: u8,
    #[command(flatten)]
    pub(crate) holding: Holding,
    /// The lock.
    #[arg(value_parser = name::parse)]
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

    /// All locks that the command line names.
    pub(crate) fn names(&self) -> Vec<LockName> {
        std::iter::once(&self.name).chain(&self.also).cloned().collect()
    }
}

/// Lead, and run a command for as long as it lasts.
///
/// Stands for leadership under the name, and runs the command when it is obtained. If leadership is lost, the command
/// is ended (TERM, and KILL after the grace), and lockwell stands again. When the command ends by itself, leadership is
/// resigned, and lockwell ends with the command's exit status.
#[derive(Args)]
#[command(after_long_help = LEAD_HELP)]
pub(crate) struct LeadArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) holding: Holding,
    /// The name of the leadership: a lock like any other.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How a lock is held while a command runs.
#[derive(Args)]
pub(crate) struct Holding {
    /// How long the lock outlives lockwell if it is killed or cut off [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) ttl: Option<Duration>,
    /// End the command and free the lock after this time, however well it goes [default: never].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// After a crash, not after a release, keep the lock from others for this time.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) lock_delay: Option<Duration>,
    /// Once the lock is lost, how long the command has between TERM and KILL.
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// A text that shows others who holds the lock [default: host and process].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Let the command go on if lockwell itself is killed.
    #[arg(long)]
    pub(crate) keep_child: bool,
    /// Hand the address of the lock server, with its password, to the command as LOCKWELL_URL.
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// Say nothing if the lock is held by another, and no warnings.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say who is waited for, and when the lock is obtained and freed.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Say it in JSON, an object in a line each: schema_version, severity, message, exit_status.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Holding {
    pub(crate) fn voice(&self) -> Voice {
        match (self.quiet, self.verbose) {
            (true, _) => Voice::Quiet,
            (_, true) => Voice::Verbose,
            _ => Voice::Usual,
        }
    }
}

/// Take a lock for a time and end, for scripts that cannot put a command under it.
///
/// Prints a handle for lockwell release. Nothing renews the lock: it ends by itself after the time. Whoever knows the
/// handle can free the lock. Not where a lock lives on a session, which ends with lockwell (ZooKeeper).
#[derive(Args)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long the lock is held, unless it is released earlier.
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) span: Duration,
    /// How long to wait for the lock at most [default: as long as it takes].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: give up at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Share the lock with other readers.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) read: bool,
    /// Hold the lock together with others, N at most. All must give the same N.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,
    /// A text that shows others who holds the lock [default: host and process].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Say nothing if the lock is held by another, and no warnings.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print JSON: schema_version, handle, name, token, ttl_ms.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
}

/// Give up a lock that lockwell acquire took, or, with --force, free a lock whoever holds it.
///
/// Exit status: 0 if it was held, 76 if it had been lost or given up before.
#[derive(Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Free the lock NAME whoever holds it. The holder goes on until it notices; asks before if this is a terminal.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask.
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    /// Print JSON: schema_version, name, released, by_force, and with --force holders. It does not ask: add --yes.
    #[arg(long)]
    pub(crate) json: bool,
    /// The handle that lockwell acquire printed, or - to read it from the standard input; with --force a name.
    #[arg(value_name = "HANDLE")]
    pub(crate) what: String,
}
