//! The `lockwell` command: runs a command while it holds a lock, on every backend.
//!
//! A program can add a backend of its own to the command:
//!
//! ```no_run
//! use lockwell::{Registry, backend::MemoryLock};
//!
//! fn main() -> std::process::ExitCode {
//!     let connect = |url: lockwell::backend::ServerUrl| async move { MemoryLock::from_url(&url) };
//!     let registry = Registry::new().with("example", connect).expect("a new scheme");
//!     lockwell_cli::run(registry)
//! }
//! ```

mod acquire;
mod args;
mod asking;
mod child;
mod connect;
mod doctor;
mod exit;
mod for_parent;
mod force;
mod grace;
mod handle;
mod helper;
mod hold;
mod job;
mod jobs;
mod json;
mod lead;
mod log;
mod loss;
mod nested;
mod obtain;
mod orphans;
mod outlet;
mod pages;
mod patience;
mod program;
mod pulse;
mod record;
mod run;
mod say;
mod schema;
mod signals;
mod status;
mod supervise;
mod systemd;
mod terminal;
mod top;
mod trace;
mod wait;
mod why;

use std::process::ExitCode;

use lockwell::Registry;

use crate::args::{Cli, Command};
use crate::exit::Failure;
use crate::signals::interruptible;

/// Runs the command line with the backends of this registry.
///
/// It is the whole of `main`: it uses the arguments, the environment and the signals of the process. Call it
/// on the main thread, which must live as long as the process.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the whole of `main`, and nobody needs the registry afterwards"
)]
pub fn run(registry: Registry) -> ExitCode {
    if let Some(status) = helper::perform(std::env::args_os()) {
        return status;
    }
    let words: Vec<_> = std::env::args_os().collect();
    let command = match Cli::read(&words) {
        Ok(cli) => cli.command,
        Err(error) => return exit::after_usage(&error, &words),
    };
    if command.json() {
        say::for_programs();
    }
    let status = match log::start(command.voice()).and_then(|()| perform(&registry, command)) {
        Ok(status) => status,
        Err(failure) => {
            say::failure(&failure);
            failure.status
        }
    };
    say::finish();
    ExitCode::from(status)
}

fn perform(registry: &Registry, command: Command) -> Result<u8, Failure> {
    // One thread is enough here: the leases are renewed by the library's own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let outcome = match command {
            Command::Run(args) => run::run(registry, &args).await,
            Command::Lead(args) => lead::lead(registry, &args).await,
            Command::Hold(args) => for_parent::hold(registry, &args).await,
            Command::Status(args) => interruptible(status::status(registry, &args)).await,
            Command::Why(args) => interruptible(why::why(registry, &args)).await,
            Command::Top(args) => interruptible(top::top(registry, &args)).await,
            Command::Wait(args) => interruptible(wait::wait(registry, &args)).await,
            Command::Jobs(args) => interruptible(jobs::jobs(registry, &args)).await,
            Command::Record(args) => interruptible(record::record(registry, &args)).await,
            Command::Acquire(args) => acquire::acquire(registry, &args).await,
            Command::Release(args) => force::release(registry, &args).await,
            Command::Doctor(args) => doctor::doctor(registry, &args).await,
            Command::Grace(args) => grace::grace(registry, &args).await,
            Command::Schema(args) => schema::schema(registry, &args),
            Command::Completions(args) => pages::completions(args.shell),
            Command::Man(args) => pages::man(args.folder.as_deref()),
        };
        connect::close_all().await;
        outcome
    });
    // A name look-up that hangs must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
