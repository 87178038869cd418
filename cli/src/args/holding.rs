//! The verbs that take or release a lock.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use lockwell::LockName;

use super::claim::{ClaimArgs, LeaseArgs};
use super::texts::{HOLD_HELP, LEAD_HELP, RUN_HELP};
use super::{Server, name, time};
use crate::exit;
use crate::obtain::Limits;
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
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
    /// Run the command once for this key, over all machines, also if one dies in the middle: a text that names
    /// the firing of a job, such as the date. If the key is done, nothing runs, and the exit status is 0.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["read", "permits"])]
    pub(crate) once: Option<String>,
    /// How many attempts a key may have, on all machines.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "once")]
    pub(crate) attempts: u32,
    /// Gone.
    #[arg(long, value_name = "TIME", hide = true)]
    pub(crate) at_least: Option<String>,
    /// Take this lock as well. The command runs when all locks are held. May be given several times.
    #[arg(long, value_name = "NAME", value_parser = name::parse, conflicts_with_all = ["read", "permits"])]
    pub(crate) also: Vec<LockName>,
    /// The exit status if the lock was not obtained in time.
    #[arg(long, value_name = "N", default_value_t = exit::NOT_OBTAINED)]
    pub(crate) exit_code_held: u8,
    #[command(flatten)]
    pub(crate) holding: WorkArgs,
    /// The name of the lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
    /// The command and its arguments. Options after its name are its own.
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
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
    pub(crate) holding: WorkArgs,
    /// The name of the lock that the leader holds.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
    /// The command and its arguments. Options after its name are its own.
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How a lock is held while a command runs.
#[derive(Args)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// End the command after this time, and free the lock when it has ended [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// The time between TERM and KILL when the command is ended.
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "5s")]
    pub(crate) grace: Duration,
    /// A text of at most 255 bytes that `lockwell status` shows for the holder [default: host name and
    /// process id].
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
    /// Print messages as JSON, one object per line: schema_version, severity, message, exit_status.
    #[arg(long)]
    pub(crate) json: bool,
}

impl WorkArgs {
    pub(crate) fn voice(&self) -> Voice {
        voice(self.quiet, self.verbose)
    }

    /// The command is ended after the longest hold. The library frees the lock at the end of its own, which
    /// comes when the command has got KILL, even if messages were written slowly before the command began.
    pub(crate) fn limits(&self) -> Limits {
        let later = self.grace.saturating_add(Duration::from_secs(3));
        // A hold of no time is refused.
        let longest = |most: Duration| if most.is_zero() { most } else { most.saturating_add(later) };
        Limits { max_hold: self.max_hold.map(longest), progress: None }
    }
}

/// Hold a lock for the program that starts lockwell, in any language.
///
/// Prints a line for each event, waits for lines on standard input, and renews the lock meanwhile, whatever
/// the other program does. The lock is freed when the line `release` comes, when standard input ends, as it
/// does with the other program, or by TERM. With --json each line is a JSON object, for programs.
#[derive(Args)]
#[command(after_help = "See --help for the lines and the exit status.", after_long_help = HOLD_HELP)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// Free the lock after this time at the latest [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// Free the lock if no line `progress` comes for this time: the other program may hang [default: no
    /// limit].
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) progress_within: Option<Duration>,
    /// A text of at most 255 bytes that `lockwell status` shows for the holder [default: host name and
    /// process id of lockwell].
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print no message on standard error if the lock is not obtained, and no warnings.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print who holds the lock while waiting, on standard error.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print each event as a JSON object in a line, and messages on standard error too.
    #[arg(long)]
    pub(crate) json: bool,
    /// The names of the locks. Several are held together, or none.
    #[arg(value_name = "NAME", required = true, value_parser = name::parse)]
    pub(crate) names: Vec<LockName>,
}

impl HoldArgs {
    pub(crate) fn voice(&self) -> Voice {
        voice(self.quiet, self.verbose)
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { max_hold: self.max_hold, progress: self.progress_within }
    }
}

fn voice(quiet: bool, verbose: bool) -> Voice {
    match (quiet, verbose) {
        (true, _) => Voice::Quiet,
        (_, true) => Voice::Verbose,
        _ => Voice::Usual,
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
    #[command(flatten)]
    pub(crate) claim: ClaimArgs,
    /// A text of at most 255 bytes that `lockwell status` shows for the holder [default: host name and
    /// process id].
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
