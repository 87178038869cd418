//! The `lockwell` command: what `flock` is for files, on every backend.
//!
//! A program with a backend of its own is a command with that backend:
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
mod child;
mod connect;
mod doctor;
mod exit;
mod force;
mod handle;
mod helper;
mod hold;
mod json;
mod lead;
mod log;
mod nested;
mod obtain;
mod pages;
mod program;
mod reach;
mod run;
mod say;
mod schema;
mod signals;
mod status;
mod supervise;
mod wait;

use std::process::ExitCode;

use clap::Parser;
use lockwell::Registry;

use crate::args::{Cli, Command};
use crate::exit::Failure;

/// Does what the command line says, with the backends of this registry.
///
/// It is the whole of `main`: it takes the process's arguments, environment and signals for its own, and the thread that calls
/// it must be the one that lives as long as the process.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is the whole of `main`, and nobody needs the registry afterwards"
)]
pub fn run(registry: Registry) -> ExitCode {
    if let Some(status) = helper::perform(std::env::args_os()) {
        return status;
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return exit::after_usage(&error, std::env::args_os()),
    };
    if command.json() {
        say::for_programs();
    }
    match log::start(command.voice()).and_then(|()| perform(&registry, command)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            failure.tell();
            ExitCode::from(failure.status)
        }
    }
}

fn perform(registry: &Registry, command: Command) -> Result<u8, Failure> {
    // One thread is enough here: the leases are renewed by the library's own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(registry, &args).await,
            Command::Lead(args) => lead::lead(registry, &args).await,
            Command::Status(args) => status::status(registry, &args).await,
            Command::Wait(args) => wait::wait(registry, &args).await,
            Command::Acquire(args) => acquire::acquire(registry, &args).await,
            Command::Release(args) => force::release(registry, &args).await,
            Command::Doctor(args) => doctor::doctor(registry, &args).await,
            Command::Schema(args) => schema::schema(&args),
            Command::Completions(args) => pages::completions(args.shell),
            Command::Man(args) => pages::man(args.folder.as_deref()),
        }
    });
    // A name look-up that hangs must not keep the process alive.
    runtime.shutdown_background();
    outcome
}
