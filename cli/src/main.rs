//! The `lockwell` command: run a program under a distributed lock, see who holds it.

mod args;
mod child;
mod connect;
mod exit;
mod run;
mod signals;
mod status;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::exit::Failure;

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return exit::after_usage(&error, std::env::args_os()),
    };
    match start_log().and_then(|()| perform(command)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            complain(&failure.message);
            ExitCode::from(failure.status)
        }
    }
}

fn perform(command: Command) -> Result<u8, Failure> {
    // One thread is enough here: the leases are renewed by the library's own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(&args).await,
            Command::Status(args) => status::status(&args).await,
        }
    });
    // A name look-up that hangs must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

/// Logs to standard error as `RUST_LOG` says, and not at all if it says nothing.
fn start_log() -> Result<(), Failure> {
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none_or(|value| value.is_empty()) {
        return Ok(());
    }
    let filter = EnvFilter::try_from_default_env()
        .map_err(|error| Failure::usage(format!("{}: {error}", EnvFilter::DEFAULT_ENV)))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

/// One line on standard error. If that is closed, there is nobody to tell.
fn complain(message: &str) {
    drop(writeln!(std::io::stderr(), "lockwell: {message}"));
}
