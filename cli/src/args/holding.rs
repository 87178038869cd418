//! The verbs that take or release a lock.

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
/// Waits for the lock, runs the command, keeps the lock while the command runs, and frees it when the command
/// has ended. If the lock is lost meanwhile, for example because the server cannot be reached for longer than
/// --ttl, the command is ended: it gets TERM, and KILL after --grace.
#[derive(Args)]
#[command(after_help = "See --help for the exit status, signals and environment.", after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The longest time to wait for the lock, as in 5s or 2m; a plain number means seconds [default: no
    /// limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: end at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Keep the lock for at least this time, even if the command ends earlier or lockwell is killed. A job
    /// that several machines start at the same time, by clocks that differ by less than this, then runs once.
    /// Not on ZooKeeper.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) at_least: Option<Duration>,
    /// Take a reader lock: several readers hold it together, but not while another holds it exclusively.
    #[arg(long, conflicts_with_all = ["permits", "also"])]
    pub(crate) read: bool,
    /// Take one permit of a semaphore: at most N hold the lock together. All users of the lock must give the
    /// same N.
    #[arg(long, value_name = "N", conflicts_with = "also")]
    pub(crate) permits: Option<NonZeroU32>,
    /// Take this lock as well. The command runs when all locks are held. May be given several times.
    #[arg(long, value_name = "NAME", value_parser = name::parse)]
    pub(crate) also: Vec<LockName>,
    /// The exit status if the lock was not obtained in time.
    #[arg(long, value_name = "N", default_value_t = exit::NOT_OBTAINED)]
    pub(crate) exit_code_held: u8,
    #[command(flatten)]
    pub(crate) holding: HoldArgs,
    /// The name of the lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// The mode that `--read` and `--permits` ask for.
fn mode(read: bool, permits: Option<NonZeroU32>) -> Mode {
    match permits {
        Some(limit) => Mode::Permit { limit },
        None if read => Mode::Shared,
        None => Mode::Exclusive,
    }
}

impl RunArgs {
    pub(crate) fn mode(&self) -> Mode {
        mode(self.read, self.permits)
    }

    /// All locks that the command line names.
    pub(crate) fn names(&self) -> Vec<LockName> {
        std::iter::once(&self.name).chain(&self.also).cloned().collect()
    }
}

/// Wait to become the leader, and run a command while leading.
///
/// Of all processes that use the same name, one leads. If leadership is lost, the command is ended (TERM, and
/// KILL after --grace), and lockwell campaigns again. When the command ends by itself, lockwell stops leading
/// and ends with the exit status of the command.
#[derive(Args)]
#[command(after_long_help = LEAD_HELP)]
pub(crate) struct LeadArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) holding: HoldArgs,
    /// The name of the lock that the leader holds.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How a lock is held while a command runs.
#[derive(Args)]
pub(crate) struct HoldArgs {
    /// How long others have to wait for the lock if lockwell is killed or loses its connection [default:
    /// 10s].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) ttl: Option<Duration>,
    /// End the command and free the lock after this time at the latest [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// If lockwell is killed or loses its connection, make others wait for this time in addition to --ttl
    /// [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) lock_delay: Option<Duration>,
    /// The time between TERM and KILL when the command is ended.
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// A text that `lockwell status` shows for the holder [default: host name and process id].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Let the command go on if lockwell itself is killed.
    #[arg(long)]
    pub(crate) keep_child: bool,
    /// Pass the address of the lock server, with its password, to the command in LOCKWELL_URL.
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// Print no message if the lock is not obtained, and no warnings.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print who holds the lock while waiting, and when it is obtained and freed.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Say it in JSON, an object in a line each: schema_version, severity, message, exit_status.
    #[arg(long)]
    pub(crate) json: bool,
}

impl HoldArgs {
    pub(crate) fn voice(&self) -> Voice {
        match (self.quiet, self.verbose) {
            (true, _) => Voice::Quiet,
            (_, true) => Voice::Verbose,
            _ => Voice::Usual,
        }
    }
}

/// Take a lock for a fixed time and end, for scripts that cannot use lockwell run.
///
/// Prints a handle for lockwell release. The lock is not renewed: it ends after the time of --for. Anybody
/// who knows the handle can free the lock. Not on ZooKeeper, where a lock ends with the process that took it.
///
/// Exit status: 0 if the lock was obtained, 75 if it was not obtained in time. See lockwell run --help for
/// errors.
#[derive(Args)]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long the lock is held if it is not released earlier, as in 5s or 2m; a plain number means seconds.
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) span: Duration,
    /// The longest time to wait for the lock [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: end at once if the lock is held.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Take a reader lock: several readers hold it together, but not while another holds it exclusively.
    #[arg(long, conflicts_with = "permits")]
    pub(crate) read: bool,
    /// Take one permit of a semaphore: at most N hold the lock together. All users of the lock must give the
    /// same N.
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<NonZeroU32>,
    /// A text that `lockwell status` shows for the holder [default: host name and process id].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print no message if the lock is not obtained, and no warnings.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print JSON: schema_version, handle, name, token, ttl_ms.
    #[arg(long)]
    pub(crate) json: bool,
    /// The name of the lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
}

impl AcquireArgs {
    pub(crate) fn mode(&self) -> Mode {
        mode(self.read, self.permits)
    }
}

/// Release a lock that lockwell acquire took, or, with --force, free a lock whoever holds it.
///
/// Exit status: 0 if the lock was held until now; 76 if it was not: the time of --for had passed, another had
/// released it, or this handle was released before. 76 means the same on every server, and the release is
/// harmless then: it frees nobody else's lock. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Free a lock, whoever holds it. Its holder may work on until it notices. On a terminal, lockwell asks
    /// before.
    #[arg(long)]
    pub(crate) force: bool,
    /// With --force: do not ask.
    #[arg(long, requires = "force")]
    pub(crate) yes: bool,
    /// Print JSON: schema_version, name, released, by_force, and with --force holders. It does not ask: add
    /// --yes.
    #[arg(long)]
    pub(crate) json: bool,
    /// The handle that lockwell acquire printed, or - to read it from standard input. With --force: the name
    /// of the lock.
    #[arg(value_name = "HANDLE")]
    pub(crate) what: String,
}
