//! The command line.

// These comments are printed as help, where Markdown would not be rendered.
#![allow(clippy::doc_markdown)]
// Each is an option by itself.
#![allow(clippy::struct_excessive_bools)]

mod claim;
mod grace;
mod holding;
mod looking;
mod name;
mod server;
mod texts;
mod time;
mod version;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub(crate) use grace::GraceArgs;
pub(crate) use holding::{AcquireArgs, HoldArgs, LeadArgs, ReleaseArgs, RunArgs, WorkArgs};
pub(crate) use looking::{
    CompletionsArgs, DoctorArgs, JobsArgs, ManArgs, RecordArgs, SchemaArgs, StatusArgs, TopArgs, WaitArgs,
    WhyArgs,
};
pub(crate) use server::Server;

use self::texts::CLI_HELP;
use crate::say::Voice;

/// Distributed locks for the shell: run a command on one machine at a time.
#[derive(Parser)]
#[command(name = "lockwell", version = version::text(), arg_required_else_help = true, after_help = CLI_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Lead(LeadArgs),
    Hold(HoldArgs),
    Status(StatusArgs),
    Why(WhyArgs),
    Top(TopArgs),
    Wait(WaitArgs),
    Record(RecordArgs),
    Jobs(JobsArgs),
    Acquire(AcquireArgs),
    Release(ReleaseArgs),
    Doctor(DoctorArgs),
    Grace(GraceArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Cli {
    /// Reads a command line. The name of a lock never stands behind `--`: a script whose variable for the name is
    /// empty would run a part of its command, under another lock.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        let cli = Self::try_parse_from(words)?;
        let command = match &cli.command {
            Command::Run(args) => &args.command,
            Command::Lead(args) => &args.command,
            _ => return Ok(cli),
        };
        match &words[..words.len() - command.len()] {
            [.., dashes, _] if dashes == "--" => {
                let text = "the name of the lock stands before --";
                Err(Self::command().error(ErrorKind::MissingRequiredArgument, text))
            }
            _ => Ok(cli),
        }
    }
}

impl Command {
    /// How much is to be said on the way.
    pub(crate) fn voice(&self) -> Voice {
        match self {
            Self::Run(args) => args.holding.voice(),
            Self::Lead(args) => args.holding.voice(),
            Self::Hold(args) => args.voice(),
            Self::Acquire(args) if args.quiet => Voice::Quiet,
            // Its findings say the same, and what to do.
            Self::Doctor(_) => Voice::Quiet,
            _ => Voice::Usual,
        }
    }

    /// Whether what is said is for programs.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.holding.json,
            Self::Lead(args) => args.holding.json,
            Self::Hold(args) => args.json,
            Self::Status(args) => args.json,
            Self::Why(args) => args.json,
            Self::Top(args) => args.json,
            Self::Wait(args) => args.json,
            Self::Record(args) => args.json,
            Self::Jobs(args) => args.json,
            Self::Acquire(args) => args.json,
            Self::Release(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Grace(args) => args.json,
            Self::Schema(args) => args.json,
            Self::Completions(_) | Self::Man(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
