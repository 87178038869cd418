//! The verbs that only look, and those that need no server.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;
use lockwell::LockName;

use super::texts::DOCTOR_HELP;
use super::{Server, name, time};

/// Show who holds locks and how many wait for them.
///
/// It is history by the time it is read: show it, do not decide by it. Nothing is created, whatever the address says.
#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON.
    ///
    /// With one NAME: schema_version, name, held, holders (token, label, mode, limit, ttl_ms, held_ms), waiters,
    /// longest_wait_ms. Otherwise schema_version and locks, a list of the same.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show it again whenever it has changed, until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// End with 75 if one of the locks is held, with 0 if all are free. Otherwise the exit status is 0 for both.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) exit_code: bool,
    /// The locks [default: all that are held].
    #[arg(value_name = "NAME", value_parser = name::parse)]
    pub(crate) names: Vec<LockName>,
}

/// Wait until a lock is free, without taking it.
///
/// Exit status: 0 when it is free, 75 if it is still held after the time.
#[derive(Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long to wait at most [default: as long as it takes].
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) limit: Option<Duration>,
    /// Print JSON at the end: what lockwell status prints of one lock, and waited_ms.
    #[arg(long)]
    pub(crate) json: bool,
    /// The lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
}

/// Examine a server as a place for locks.
///
/// Connects, asks the server about itself, and hands a lock of its own from one connection to another. Each finding says what
/// to do.
#[derive(Args)]
#[command(after_long_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Take no lock to try the server with.
    #[arg(long)]
    pub(crate) look_only: bool,
    /// Print JSON: schema_version, server, worst, findings (subject, severity, message, remedy).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the statements that create the lock tables, for an administrator.
///
/// Nothing is sent: the address only says which database and, by table=, which tables.
#[derive(Args)]
pub(crate) struct SchemaArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON: schema_version, server, statements.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print completions for a shell.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: Shell,
}

/// Print the manual page, or write all manual pages to a folder.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// The folder: lockwell.1 and one page for each verb.
    pub(crate) folder: Option<PathBuf>,
}
