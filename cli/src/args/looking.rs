//! The verbs that only read, and those that need no server.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::Shell;
use lockwell::LockName;

use super::texts::DOCTOR_HELP;
use super::{Server, name, time};

/// Show who holds locks and who waits for them.
///
/// The answer may be out of date when it is read, so do not use it to decide whether to work. Nothing is
/// created on the server.
///
/// Exit status: 0, or that of --exit-code. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON.
    ///
    /// Times are in milliseconds. With one NAME: schema_version, name, held, holders (token, label, mode,
    /// limit, ttl_ms, held_ms, traceparent), waiters, waiting, longest_wait_ms, unknown_ms. Otherwise schema_version, locks (a list
    /// of such objects) and unknown_ms. waiting has the first waiters (label, mode, limit, waited_ms,
    /// traceparent). unknown_ms is there during a grace period: holders may be missing for
    /// so many milliseconds.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the status again whenever it changes, until interrupted.
    #[arg(long)]
    pub(crate) watch: bool,
    /// End with 75 if one of the locks is held, or if that is not known, and with 0 if all are free. Without
    /// this option, both end with 0.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) exit_code: bool,
    /// The names of the locks [default: all that are held].
    #[arg(value_name = "NAME", value_parser = name::parse)]
    pub(crate) names: Vec<LockName>,
}

/// Say why a lock is waited for: who holds it, what the holder waits for itself, and whether they wait for
/// each other.
///
/// A lockwell run, lead or hold below another one knows it by LOCKWELL_TRACE, so that it is known which claims a
/// holder waits for. If two looks show the same cycle, it is a deadlock: it ends when a wait ends (--wait), or one
/// of them is ended. Where only the trace of requests of programs says so, which may do several things at a time,
/// it may be one.
///
/// Exit status: 79 if there is a deadlock, with NAME one that keeps that lock. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON: schema_version, locks (those of lockwell status), waits and deadlocks (sure, waits). Of each
    /// wait: name, holder, token, for, label, waited_ms. With --for: grants (name, token, label, traceparent,
    /// after_ms).
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on looking for this time, as in 10s, and print each grant that is seen. Short holds can be missed.
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) span: Option<Duration>,
    /// The name of the lock [default: all that are held, those with waiters first].
    #[arg(value_name = "NAME", value_parser = name::parse)]
    pub(crate) name: Option<LockName>,
}

/// Show the locks by contention: who waits for what, for how long, and how fast it moves.
///
/// Refreshes until it is interrupted. The locks with the most waiters come first. Hand-overs a second are
/// counted by comparing two looks. Hand-overs between two looks can be missed, so there were at least that
/// many. For a lock that is held exclusively, 0 means that it was not handed over.
/// Nothing is created on the server.
#[derive(Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The time between two looks, as in 2s or 500ms; 100ms at least.
    #[arg(long, value_name = "TIME", value_parser = time::parse, default_value = "2s")]
    pub(crate) every: Duration,
    /// Look at N locks at most each time: at those with waiters first, and at the others in turn.
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) most: NonZeroUsize,
    /// Look twice, print that, and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON: schema_version, server, known, looked_at, locks (those of lockwell status,
    /// hand_overs_per_s_at_least, age_ms). Without --once, an object in a line for each refresh.
    #[arg(long)]
    pub(crate) json: bool,
    /// The names of the locks [default: all that are held].
    #[arg(value_name = "NAME", value_parser = name::parse)]
    pub(crate) names: Vec<LockName>,
}

/// Wait until a lock is free, without taking it.
///
/// Exit status: 0 when it is free, 75 if it is still held, or not known to be free, after the time of --for.
/// See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// The longest time to wait, as in 5s or 2m; a plain number means seconds [default: no limit].
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(crate) limit: Option<Duration>,
    /// Print JSON at the end: what lockwell status prints of one lock, and waited_ms.
    #[arg(long)]
    pub(crate) json: bool,
    /// The name of the lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
}

/// Print the record of a lock: what its last holder has left for the next one.
///
/// The bytes are printed as they are. It says that its writer held the lock then, not that it holds it now.
///
/// Exit status: 0, or 1 if there is no record. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON: schema_version, name, value, token, hold_id. A value that is not UTF-8 is value_hex.
    #[arg(long)]
    pub(crate) json: bool,
    /// The name of the lock.
    #[arg(value_parser = name::parse)]
    pub(crate) name: LockName,
}

/// Show what has become of the jobs of lockwell run --once.
///
/// With a NAME, its last keys, the newest first; without, the last key of each job. A key is done, running,
/// failed, or died: it was begun, and its host has not got the lock any more. Times are by the clock of its
/// host.
///
/// Exit status: 0, or 1 if --done-within or --forget finds nothing. See lockwell run --help for errors.
#[derive(Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print JSON: schema_version, jobs (name, key, state, since, attempts, took_ms, by, token).
    #[arg(long)]
    pub(crate) json: bool,
    /// End with 1 if one of the jobs has no key that was done within this time, as in 26h.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) done_within: Option<Duration>,
    /// Forget a key of the one NAME, so that it can run again. Waits until the lock is free, and takes it.
    #[arg(long, value_name = "KEY", conflicts_with = "done_within")]
    pub(crate) forget: Option<String>,
    /// The names of the jobs [default: all].
    #[arg(value_name = "NAME", value_parser = name::parse)]
    pub(crate) names: Vec<LockName>,
}

/// Check whether a server is set up well for locks.
///
/// Connects, reads the settings of the server, and passes a test lock from one connection to another. Each
/// finding says what to do.
#[derive(Args)]
#[command(after_long_help = DOCTOR_HELP)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Take no test lock.
    #[arg(long)]
    pub(crate) look_only: bool,
    /// Print JSON: schema_version, server, worst, findings (subject, severity, message, remedy).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the statements that create the lock tables, for an administrator.
///
/// It does not connect: the address only gives the kind of database and, by its option table=, the names of
/// the tables.
#[derive(Args)]
pub(crate) struct SchemaArgs {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print the routine TABLE_verify instead, on PostgreSQL, MySQL and MariaDB.
    ///
    /// A script that lockwell runs calls it first in its transaction, with LOCKWELL_NAME, LOCKWELL_TOKEN and
    /// LOCKWELL_HOLD. It fails if that hold has ended. Otherwise the lock does not change hands until the
    /// transaction ends. Without a transaction it protects nothing. Whoever runs the printed statements owns
    /// the routine, and needs SELECT and UPDATE on the tables; who calls it needs neither.
    #[arg(long)]
    pub(crate) verify: bool,
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
    /// The folder for all pages: lockwell.1, and one page for each command [default: print lockwell.1].
    pub(crate) folder: Option<PathBuf>,
}
